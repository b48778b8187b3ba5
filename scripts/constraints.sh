#!/usr/bin/env bash
# Writes constraints.txt: what requirements.txt pulls in beyond itself. Releases for 3.9 stopped long before those for
# 3.10, and some requirements begin with 3.11, hence the three resolutions.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

direct=$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' requirements.txt | sort -u | paste -sd '|' -)
pythons=$(scripts/pythons.sh)
for version in 3.9 3.10 3.11; do
  python=$(grep "/python${version/./\\.}\$" <<<"$pythons" | tail -1) || {
    echo "constraints.sh: expected a CPython $version, scripts/pythons.sh finds none: put one on PATH" >&2
    exit 1
  }
  scripts/venv.sh "$python" "$work/$version"
  "$work/$version/bin/python" -m pip freeze | grep -vEi "^($direct)==" | sort >"$work/$version.txt"
done
if grep -v == "$work"/*.txt; then
  echo "constraints.sh: expected name==version only, saw the lines above: install from an index, not from files" >&2
  exit 1
fi

# Where all three agree there is no marker.
{
  echo "# Generated from requirements.txt by: make constraints"
  {
    comm -12 "$work"/3.9.txt "$work"/3.10.txt | comm -12 - "$work"/3.11.txt >"$work/all.txt"
    cat "$work/all.txt"
    comm -23 "$work"/3.9.txt "$work/all.txt" | sed 's/$/; python_version == "3.9"/'
    comm -23 "$work"/3.10.txt "$work/all.txt" | sed 's/$/; python_version == "3.10"/'
    comm -23 "$work"/3.11.txt "$work/all.txt" | sed 's/$/; python_version >= "3.11"/'
  } | sort
} >"$work/constraints.txt"
cp "$work/constraints.txt" constraints.txt
