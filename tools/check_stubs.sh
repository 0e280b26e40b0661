#!/usr/bin/env bash
# gear/_core.pyi is generated from the built extension. Without an argument: fail if the committed
# file differs from what the extension gives. With --write: replace it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/stubs
rm -rf "$out"
# From another folder, so that the installed package is the one described.
mkdir -p "$out"
(cd "$out" && ../../.venv/bin/python -m pybind11_stubgen --exit-code --output-dir "$out" gear._core)
.venv/bin/ruff format --quiet --no-cache --isolated --line-length 100 "$out/gear/_core.pyi"

if [ "${1:-}" = --write ]; then
  cp "$out/gear/_core.pyi" gear/_core.pyi
  echo "stubs: wrote gear/_core.pyi"
elif ! diff -u gear/_core.pyi "$out/gear/_core.pyi"; then
  echo "stubs: gear/_core.pyi does not describe the built extension; run: make stubs" >&2
  exit 1
fi
