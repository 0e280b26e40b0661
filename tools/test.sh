#!/usr/bin/env bash
# `make test`: venv, build, lint, native tests, Python tests. Ends with what this machine could not
# run, and pytest's closing line. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh dev
tools/lint.sh

mapfile -t not_run < <(tools/debian_packages.sh missing)
if echo '#include <doctest/doctest.h>' | g++ -x c++ -E - >/dev/null 2>&1; then
  tools/native.sh
fi

log=build/pytest.log
status=0
.venv/bin/python -m pytest "$@" 2>&1 | tee "$log" || status=$?
while IFS= read -r line; do not_run+=("${line#SKIPPED }"); done < <(grep '^SKIPPED ' "$log" || true)

if [ ${#not_run[@]} -gt 0 ]; then
  echo "test: not run on this machine:"
  printf '  %s\n' "${not_run[@]}"
fi
tail -n 1 "$log"
exit "$status"
