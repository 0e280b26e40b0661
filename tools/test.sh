#!/usr/bin/env bash
# `make test`: venv, build, native tests, Python tests; `make test-all`: lint and slow tests, too. Ends with
# what this machine could not run, and pytest's closing line.
#
#   tools/test.sh [--all] [pytest arguments]
#
# Without --all: no lint (`make lint`), no test that is marked slow, the native tests over the core as it is,
# without sanitizers, and GPU code is compiled where there is a GPU alone.
# Tests run side by side, three processes for two cores; `-n 0` runs them in this one.
set -euo pipefail
cd "$(dirname "$0")/.."

tier=(-m "not slow")
sanitizers=none
if [ "${1:-}" = --all ]; then
  shift
  tier=()
  sanitizers=all
  export GEAR_WITH_CUDA=${GEAR_WITH_CUDA:-ON}
fi

tools/setup.sh dev

# Native tests beside lint: they wait more than they compute, and lint ends with one process.
native=
mapfile -t not_run < <(tools/debian_packages.sh missing)
if echo '#include <doctest/doctest.h>' | g++ -x c++ -E - >/dev/null 2>&1; then
  setsid tools/native.sh "--sanitizers=$sanitizers" >build/native.log 2>&1 &
  native=$!
  trap 'kill -- "-$native" 2>/dev/null || true' EXIT
fi
if [ ${#tier[@]} = 0 ]; then
  tools/lint.sh
  # Only slow tests need it; 3: no MPI here, and they are skipped. Once more for MPICH, where Debian's is to be had.
  tools/c10d.sh >/dev/null || [ $? = 3 ]
  if mpich=$(tools/unpack_mpich.sh); then MPICXX=$mpich/mpicxx tools/c10d.sh >/dev/null || [ $? = 3 ]; fi
fi

status=0
if [ -n "$native" ]; then
  wait "$native" || status=$?
  trap - EXIT
  cat build/native.log
  [ "$status" = 0 ] || exit "$status"
fi

log=build/pytest.log
# More than cores: what waits for a job, for ranks or for packages leaves its core to others. Memory is not
# endless where cores are many.
processes=$(($(nproc) * 3 / 2))
[ "$processes" -le 8 ] || processes=8
.venv/bin/python -m pytest -n "$processes" --dist loadgroup --durations=40 "${tier[@]}" "$@" 2>&1 |
  tee "$log" || status=$?
while IFS= read -r line; do not_run+=("${line#SKIPPED }"); done < <(grep '^SKIPPED ' "$log" || true)

if [ ${#not_run[@]} -gt 0 ]; then
  echo "test: not run on this machine:"
  printf '  %s\n' "${not_run[@]}"
fi
[ ${#tier[@]} -eq 0 ] || echo "test: without the slow tests, which 'make test-all' runs"
tail -n 1 "$log"
exit "$status"
