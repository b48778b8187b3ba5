#!/usr/bin/env bash
set -euo pipefail

wanted=(3.13 3.14 3.15)
prefix=${HANGPROOF_PYTHONS:-/opt/pythons}
[[ $prefix == /* ]] || prefix=$PWD/$prefix
root=$prefix/root

usage() {
  cat <<END
usage: scripts/pythons.sh [--install]

Prints the path of every CPython from 3.9 on, oldest first, one on a line: python3 and python3.N on PATH, pyenv's
versions, and what --install brought. Changes nothing.

--install  first brings those of ${wanted[*]} that are missing. Needs root on Debian (amd64 or arm64); they come from
           Debian unstable and stay under \$HANGPROOF_PYTHONS (now $prefix), beside what the system has.
END
}

fail() {
  printf 'pythons.sh: %s\n' "$*" >&2
  exit 1
}

# Prints the base of a virtual environment instead of the environment, so that each installation is listed once.
probe='
import os, sys
executable = sys.executable
base = os.path.join(sys.base_exec_prefix, "bin", "python%d.%d" % sys.version_info[:2])
if sys.prefix != sys.base_prefix and os.path.exists(base):
    executable = base
if sys.implementation.name == "cpython" and sys.version_info >= (3, 9):
    print("%08x %d.%d %s" % (sys.hexversion, *sys.version_info[:2], os.path.realpath(executable)))
'

candidates() {
  local dirs dir
  IFS=: read -ra dirs <<<"$PATH"
  for dir in "${dirs[@]}"; do
    [[ $dir == /* ]] && printf '%s\n' "$dir"/python3 "$dir"/python3.[0-9] "$dir"/python3.[0-9][0-9]
  done
  printf '%s\n' "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin/python "$root"/usr/bin/python3.[0-9][0-9]
}

# Lines of hexadecimal version, minor version and path. The path is asked of the interpreter itself, because a
# candidate can be a script (pyenv's shims) or a link.
pythons() {
  local candidate
  candidates | sort -u | while IFS= read -r candidate; do
    [[ ! -x $candidate ]] || "$candidate" -I -B -c "$probe" </dev/null 2>/dev/null || true
  done | LC_ALL=C sort -u
}

missing() {
  local found version absent=()
  found=$(pythons)
  for version in "${wanted[@]}"; do
    grep -q "^[^ ]* $version " <<<"$found" || absent+=("$version")
  done
  printf '%s' "${absent[*]-}"
}

# Unpacks packages instead of installing them, so that no file of the system changes. They bring their own libc,
# which is newer than the system's; hence the interpreters are patched to use it.
install() {
  local versions system=unknown architecture=unknown mirror deb loader lib new version
  local otherwise="install it in another way (pyenv, for one) and put it on PATH" work=$prefix/new
  versions=$(missing)
  [[ -n $versions ]] || return 0

  # shellcheck source=/dev/null
  [[ ! -r /etc/os-release ]] || system=$(. /etc/os-release && printf '%s' "$ID")
  [[ $system == debian && $EUID == 0 ]] ||
    fail "CPython $versions: needs root on Debian, this is user $(id -un) on $system: $otherwise"
  architecture=$(dpkg --print-architecture)
  case $architecture in
    amd64) loader=x86_64-linux-gnu/ld-linux-x86-64.so.2 ;;
    arm64) loader=aarch64-linux-gnu/ld-linux-aarch64.so.1 ;;
    *) fail "CPython $versions: needs amd64 or arm64, this is $architecture: $otherwise" ;;
  esac
  # apt prints its sources the same way whether they are written in the classic format or in deb822.
  mirror=$(apt-get update --print-uris | sed -n "s|^'\([^']*/debian\)/dists/.*/InRelease'.*|\1|p" | sed -n 1p)
  [[ -n $mirror ]] ||
    fail "CPython $versions: needs a Debian mirror, no source of apt has a URI that ends in /debian: $otherwise"

  mkdir -p "$root"
  exec 9>"$prefix/lock"
  flock 9
  versions=$(missing) # another one may have installed them meanwhile
  [[ -n $versions ]] || return 0
  trap 'rm -rf "$prefix/new"' EXIT
  rm -rf "$work"
  mkdir -p "$work"/{root,lists/partial,archives/partial}
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s sid main\n' "$mirror" >"$work/sources.list"
  : >"$work/status" # to apt nothing is installed, hence it resolves everything down to libc

  local packages=(patchelf) apt=(apt-get -qq
    -o Dir::State="$work" -o Dir::State::status="$work/status" -o Dir::Cache="$work"
    -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o APT::Default-Release= -o Acquire::Languages=none -o Acquire::Retries=3)
  for version in $versions; do packages+=("python$version"); done
  { "${apt[@]}" update --error-on=any &&
    "${apt[@]}" install --download-only --no-install-recommends -y "${packages[@]}"; } ||
    fail "CPython $versions: Debian unstable at $mirror did not deliver, apt says why above: mend that or $otherwise"
  for deb in "$work"/archives/*.deb; do dpkg -x "$deb" "$work/root"; done

  # An interpreter gets its name last: what carries the name is complete.
  mkdir "$work/bin"
  for version in $versions; do mv "$work/root/usr/bin/python$version" "$work/bin/"; done
  cp -a --remove-destination "$work/root/." "$root/"
  lib=$root/usr/lib/${loader%/*}
  for version in $versions; do
    new=$root/usr/bin/.new-python$version
    # Without --no-sort, patchelf 0.18 makes segments overlap and the result crashes at once.
    "$root/usr/lib/$loader" --library-path "$lib" "$root/usr/bin/patchelf" --no-sort --force-rpath --set-rpath "$lib" \
      --set-interpreter "$root/usr/lib/$loader" --output "$new" "$work/bin/python$version"
    chmod 755 "$new"
    "$new" -I -c 'import bz2, ctypes, lzma, multiprocessing.synchronize, sqlite3, ssl, zlib' ||
      fail "CPython $version: what $mirror delivered does not run here: $otherwise"
    # Else every start of an ordinary user compiles anew. Some files are meant not to compile.
    "$new" -m compileall -q -j 0 "$root/usr/lib/python$version" >/dev/null || true
    mv "$new" "$root/usr/bin/python$version"
  done
}

case "$#:${1-}" in
  0:) ;;
  1:--install) install >&2 ;;
  1:-h | 1:--help) usage && exit ;;
  *) usage >&2 && exit 2 ;;
esac
pythons | cut -d ' ' -f 3-
