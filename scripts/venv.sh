#!/usr/bin/env bash
# usage: scripts/venv.sh PYTHON DIRECTORY REQUIREMENTS [OPTION OF PIP INSTALL]...
# Makes a virtual environment of PYTHON that holds REQUIREMENTS, a file. Debian's python3 lacks ensurepip, and pip
# --python runs the code of the calling pip on PYTHON, where one that is older than PYTHON crashes. So any pip at hand
# (its own Python from 3.9 on) copies the pip that requirements.txt names, and that one does the rest. $PIP names another
# than PYTHON's own.
set -euo pipefail
python=$1 directory=$2 requirements=$3
shift 3
read -ra pip <<<"${PIP:-$python -m pip}"

seen=$("${pip[@]}" --version 2>&1) || {
  echo "venv.sh: expected a pip as '${pip[*]}', saw: ${seen##*$'\n'}: install one (Debian: apt-get install" \
    "python3-pip) or name another, like make PIP='python3.12 -m pip'" >&2
  exit 1
}
"$python" -m venv --clear --without-pip "$directory"
packages=$("$directory/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
PIP_ROOT_USER_ACTION=ignore "${pip[@]}" install --quiet --disable-pip-version-check --target "$packages" \
  "$(grep '^pip==' "$(dirname "$0")/../requirements.txt")"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" "$@"
