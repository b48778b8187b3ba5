#!/usr/bin/env bash
# usage: scripts/verify-iso.sh [--ends]
# Proves the chapter iso with what requirements-iso.txt names, on each CPython that has wheels of it, in an environment of
# its own below build/iso; --ends: on the oldest and the newest of them only. What a rule says of chromadb 1.0 is proven on
# the oldest one.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1-}" in
'') versions=(3.10 3.11 3.12 3.13 3.14) ;;
--ends) versions=(3.10 3.14) ;;
*)
  sed -n '2,5s/^# //p' scripts/verify-iso.sh >&2
  exit 2
  ;;
esac
pythons=$(scripts/pythons.sh)
pip=$(command -v python3)
options=()

# usage: environment VERSION NAME REQUIREMENTS [OPTION]...: prints the path of its interpreter.
environment() {
  local python made=build/iso/$2/made
  python=$(grep "/python$(sed 's/\./\\./' <<<"$1")\$" <<<"$pythons" | tail -1) || {
    echo "verify-iso.sh: expected a CPython $1, scripts/pythons.sh finds none: put one on PATH" >&2
    return 1
  }
  if ! cat "$3" constraints-iso.txt | cmp -s - "$made"; then
    PIP=${PIP:-$pip -m pip} scripts/venv.sh "$python" "build/iso/$2" "${@:3}" >&2
    cat "$3" constraints-iso.txt >"$made"
  fi
  echo "build/iso/$2/bin/python"
}

mkdir -p build/iso
for version in "${versions[@]}"; do
  python=$(environment "$version" "$version" requirements-iso.txt --constraint constraints-iso.txt)
  options+=(--python "$python")
done
echo chromadb==1.0.20 >build/iso/older.txt
older=$(environment "${versions[0]}" older build/iso/older.txt)

python3 scripts/verify-recipes.py iso --require chromadb --require faiss-cpu "${options[@]}"
python3 scripts/verify-recipes.py iso-verify-the-reset --require chromadb --python "$older"
