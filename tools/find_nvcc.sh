#!/usr/bin/env bash
# Prints the nvcc that builds here use: CUDACXX, PATH, CUDA_HOME or the usual place, else the one that
# tools/setup.sh took from PyPI. Exit 1 without one.
set -euo pipefail
cd "$(dirname "$0")/.."
for candidate in "${CUDACXX:-}" nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" \
  "$PWD/.venv/cuda/nvidia/cu13/bin/nvcc"; do
  if [ -n "$candidate" ] && command -v "$candidate"; then exit 0; fi
done
exit 1
