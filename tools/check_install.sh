#!/usr/bin/env bash
# For every Python 3.10 to 3.13 of this machine: builds the wheel as `pip install .` does, installs
# it in a fresh venv where only numpy is, and runs one round trip through the replay buffer.
# Pythons are those on PATH, and those under $PYENV_ROOT. Without CUDA: the build with it is the one
# that tools/setup.sh makes.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export CMAKE_ARGS="${CMAKE_ARGS:-} -DGEAR_WITH_CUDA=OFF"
work=$(mktemp -d)
# Not build/: others may be building there. And one for all: the core knows no Python, so that it is compiled
# for the first of them and linked for all.
export SKBUILD_BUILD_DIR=$work/build
trap 'rm -rf "$work"' EXIT

find_python() { # minor version
  local candidate
  for candidate in "python3.$1" python3 ${PYENV_ROOT:+"$PYENV_ROOT"/versions/3."$1".*/bin/python3}; do
    command -v "$candidate" >/dev/null || continue
    "$candidate" -c "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, $1))" \
      2>/dev/null || continue
    "$candidate" -c 'import sys; print(sys.executable)'
    return 0
  done
  return 1
}

check() { # interpreter
  local venv=$work/venv
  rm -rf "$venv"
  "$1" -m venv "$venv"
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check -qq)
  "${pip[@]}" wheel --no-deps --wheel-dir "$work/wheel" "$root"
  "${pip[@]}" install "$work"/wheel/gear_replay-*.whl
  (cd "$work" && "$venv/bin/python" "$root/tools/round_trip.py")
  # Without the extra [cli] the command says what to install, in one line.
  local code=0
  (cd "$work" && "$venv/bin/gear" check >out 2>err) || code=$?
  if [ "$code" != 2 ] || [ "$(wc -l <"$work/err")" != 1 ]; then
    echo "install: gear without click: exit code $code, stderr:" >&2
    cat "$work/err" >&2
    return 1
  fi
  "${pip[@]}" install "$(echo "$work"/wheel/gear_replay-*.whl)[cli]"
  (cd "$work" && "$venv/bin/gear" check --json >/dev/null)
  rm -rf "$work/wheel"
}

checked=0
for minor in 10 11 12 13; do
  if python=$(find_python "$minor"); then
    echo "install: Python 3.$minor ($("$python" --version))"
    check "$python"
    checked=$((checked + 1))
  else
    echo "install: Python 3.$minor is not on this machine: not checked"
  fi
done
[ "$checked" -gt 0 ] || { echo "install: no Python 3.10 to 3.13 found" >&2; exit 1; }
