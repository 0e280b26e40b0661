#!/usr/bin/env bash
# Every check of `make lint`, one line each; a failing one shows its output. Exit 1 if any failed.
#
#   tools/lint.sh [--without=clang-tidy]      half of the time is clang-tidy's
set -euo pipefail
without=
case ${1:-} in
  '') ;;
  --without=clang-tidy) without=clang-tidy ;;
  *)
    echo "lint: unknown $1: --without=clang-tidy, or nothing" >&2
    exit 2
    ;;
esac
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
mkdir -p build

failed=()
check() { # name, command...
  local name=$1 log=build/lint-check.log # not lint.log, where tools/test.sh keeps what this prints
  shift
  if "$@" >"$log" 2>&1; then
    printf 'lint: %-14s ok\n' "$name"
  else
    printf 'lint: %-14s FAILED: %.100s\n' "$name" "$*" # of hundreds of files the first ones
    cat "$log"
    failed+=("$name")
  fi
}

sources() { find . \( -path './.[!.]*' ! -path './.ci*' -o -name build -o -name dist \) -prune -o -type f "$@"; }
mapfile -t cpp < <(sources \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print | sort)
mapfile -t shell < <(sources -print0 | xargs -0 awk 'FNR == 1 && /^#!.*[\/ ](ba)?sh/ {print FILENAME} {nextfile}' | sort)

# Uses the cores that the others leave, and is waited for last.
if [ -z "$without" ]; then
  tools/clang_tidy.sh >build/clang-tidy.log 2>&1 &
  tidy=$!
fi
tidied() { wait "$tidy" || { cat build/clang-tidy.log; return 1; }; }

check ruff ruff check .
check ruff-format ruff format --check .
check mypy mypy gear process_group/python/gear_mpi benchmarks examples
check clang-format clang-format --dry-run -Werror "${cpp[@]}"
check shellcheck shellcheck "${shell[@]}"
check hadolint hadolint recipes/containers/Dockerfile
check codespell codespell
check layers python tools/check_layers.py
check old-names python tools/check_old_names.py
check stubs tools/check_stubs.sh
if [ -z "$without" ]; then check clang-tidy tidied; fi

if [ ${#failed[@]} -gt 0 ]; then
  echo "lint: failed: ${failed[*]}" >&2
  exit 1
fi
