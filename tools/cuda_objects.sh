#!/usr/bin/env bash
# Compiles the sources that need the CUDA toolkit, and nothing else: whether GPU code compiles, where no GPU could
# run it. A build with it (GEAR_WITH_CUDA=ON tools/setup.sh) compiles the others once more, too.
#
#   tools/cuda_objects.sh
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
tools/install_nvcc.sh
CUDACXX=$(tools/find_nvcc.sh)
export CUDACXX
build=build/cuda
mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DGEAR_BUILD_PYTHON=OFF -DGEAR_WITH_CUDA=ON -DGEAR_CUDA_ARCHITECTURES=75 \
  -DGEAR_HEADERS_ONCE=ON >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log"
  exit 1
}
# A folder's sources are one object: cmake/headers_once.cmake.
mapfile -t objects < <(ninja -C "$build" -t targets all | sed -n 's/^\([^ ]*gear_core[^ ]*\.o\): .*/\1/p' |
  grep -E '_(cuda|nccl)_([a-z_]+_)?cxx\.cxx\.o$|\.cu\.o$')
if [ ${#objects[@]} -lt 25 ]; then
  echo "cuda: ${#objects[@]} objects need the toolkit, and there are more: see $build" >&2
  exit 1
fi
ninja -C "$build" "${objects[@]}" >"$build/build.log" 2>&1 || {
  grep -aE 'error|FAILED' "$build/build.log" | head -n 40
  echo "cuda: error: the build failed: $build/build.log" >&2
  exit 1
}
echo "cuda: ${#objects[@]} objects compiled by $CUDACXX"
