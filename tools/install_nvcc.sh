#!/usr/bin/env bash
# Takes a CUDA compiler and what comes with it from PyPI (some 270 MB in .venv/cuda), in the layout of a toolkit,
# where tools/find_nvcc.sh finds none.
set -euo pipefail
cd "$(dirname "$0")/.."
if tools/find_nvcc.sh >/dev/null; then exit 0; fi
echo "setup: no CUDA compiler here: taking one from PyPI (some 270 MB in .venv/cuda)"
.venv/bin/python -m pip --disable-pip-version-check -qq install \
  --no-deps --upgrade --target .venv/cuda -r requirements/cuda.txt || {
  echo "setup: the CUDA compiler could not be installed. Set CUDACXX to an nvcc, or GEAR_WITH_CUDA=OFF" >&2
  exit 1
}
ln -sfn lib .venv/cuda/nvidia/cu13/lib64
ln -sfn libcudart.so.13 .venv/cuda/nvidia/cu13/lib/libcudart.so
