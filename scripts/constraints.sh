#!/usr/bin/env bash
# Writes constraints*.txt: what requirements*.txt pull in beyond themselves. Not every release is there for every Python,
# hence one resolution for each that matters; the last one also stands for what comes after it.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pythons=$(scripts/pythons.sh)

# usage: resolve REQUIREMENTS VERSION: prints name==version, a line each.
resolve() {
  local python direct
  python=$(grep "/python${2/./\\.}\$" <<<"$pythons" | tail -1) || {
    echo "constraints.sh: expected a CPython $2, scripts/pythons.sh finds none: put one on PATH" >&2
    exit 1
  }
  direct=$(sed -n 's/^\([A-Za-z0-9._-]*\)==.*/\1/p' "$1" | sort -u | paste -sd '|' -)
  scripts/venv.sh "$python" "$work/venv" "$1"
  "$work/venv/bin/python" -m pip freeze --all | grep -vEi "^(pip|$direct)=="
}

# usage: constrain REQUIREMENTS CONSTRAINTS VERSION...: where all agree there is no marker.
constrain() {
  local requirements=$1 constraints=$2 version
  shift 2
  for version; do
    resolve "$requirements" "$version" >"$work/$version.txt"
    if grep -v == "$work/$version.txt"; then
      echo "constraints.sh: expected name==version only, saw the lines above: install from an index, not files" >&2
      exit 1
    fi
  done
  for version; do
    sed "s/\$/ $version/" "$work/$version.txt"
  done | awk -v count=$# -v last="${!#}" '
    { where[$1] = where[$1] " " $2; times[$1]++ }
    END {
      for (pin in where) {
        if (times[pin] == count) { print pin; continue }
        split(where[pin], versions, " ")
        for (each in versions)
          print pin "; python_version " (versions[each] == last ? ">=" : "==") " \"" versions[each] "\""
      }
    }' | sort >"$work/constraints.txt"
  { echo "# Generated from $requirements by: make constraints" && cat "$work/constraints.txt"; } >"$work/whole.txt"
  cp "$work/whole.txt" "$constraints"
}

constrain requirements.txt constraints.txt 3.9 3.10 3.11
constrain requirements-iso.txt constraints-iso.txt 3.10 3.11 3.12 3.13 3.14
