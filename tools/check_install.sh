#!/usr/bin/env bash
# For every Python 3.10 to 3.13 of this machine: what INSTALL.md says of an environment of one's own, which is
# $work/gear-venv here, and in it one round trip through the replay buffer with nothing but NumPy.
# Pythons are those that tools/find_python.sh finds. Without CUDA: the build with it is the one
# that tools/setup.sh makes.
#
#   tools/check_install.sh [--one | --nightly]
#
# --one: on the first of these Pythons. --nightly: the command with CUDA, too, which compiles everything once more.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export CMAKE_ARGS="${CMAKE_ARGS:-} -DGEAR_WITH_CUDA=OFF"
work=$(mktemp -d)
# Not build/: others may be building there. And one for all: the core knows no Python, so that it is compiled
# for the first of them and linked for all.
export SKBUILD_BUILD_DIR=$work/build
export PIP_DISABLE_PIP_VERSION_CHECK=1
trap 'rm -rf "$work"' EXIT

documented() { "$python" tools/documented.py "$@"; }

as_documented() { # a command of the documents; its python3 is $python
  local here=${1//\~/$work}
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/bin/python3"
  PATH="$work/bin:$PATH" bash -euo pipefail -c "$here" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }
  documented ran tools/check_install.sh "$1" "$here"
}

check() {
  local venv=$work/gear-venv
  rm -rf "$venv"
  mapfile -t shown < <(documented of tools/check_install.sh)
  as_documented "${shown[0]}" # the venv
  as_documented "${shown[1]}" # GEAR
  (cd "$work" && "$venv/bin/python" "$root/tools/round_trip.py")
  # Without the extra [cli] the command says what to install, in one line.
  local code=0
  (cd "$work" && "$venv/bin/gear" check >out 2>err) || code=$?
  if [ "$code" != 2 ] || [ "$(wc -l <"$work/err")" != 1 ]; then
    echo "install: gear without click: exit code $code, stderr:" >&2
    cat "$work/err" >&2
    return 1
  fi
  as_documented "${shown[2]}" # the extra [cli]
  (cd "$work" && "$venv/bin/gear" check --json >/dev/null)
}

mkdir "$work/bin"
shown=()
checked=0
for minor in 10 11 12 13; do
  if found=$(tools/find_python.sh "3.$minor"); then
    python=$found
    echo "install: Python 3.$minor ($("$python" --version))"
    check
    checked=$((checked + 1))
    if [ "${1:-}" = --one ]; then break; fi
  else
    echo "install: Python 3.$minor is not on this machine: not checked"
  fi
done
[ "$checked" -gt 0 ] || { echo "install: no Python 3.10 to 3.13 found" >&2; exit 1; }

if [ "${1:-}" != --nightly ]; then
  for line in "${shown[@]:3}"; do
    documented left-out tools/check_install.sh "$line" "compiles for minutes; CI runs it each night"
  done
else
  if CUDACXX=$(tools/find_nvcc.sh); then
    export CUDACXX
    as_documented "${shown[3]}" # with CUDA
    (cd "$work" && gear-venv/bin/python -c 'import gear; assert gear._core.build_info()["cuda"]')
  else
    documented left-out tools/check_install.sh "${shown[3]}" "this machine has no nvcc"
  fi
fi
