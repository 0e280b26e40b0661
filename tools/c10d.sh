#!/usr/bin/env bash
# Builds the extension gear_mpi._c10d, the process group gear_mpi of torch.distributed, for the torch of a
# Python and the MPI whose mpicxx is first on PATH (or MPICXX). GEAR works without it.
#
#   tools/c10d.sh [--emulator] [--python=PYTHON] [--to=FOLDER] [--sanitize=LIST] [--tests]
#
# --emulator: gear.emu._emu in its place, the process group gear_emu, which needs no MPI.
# PYTHON: .venv/bin/python by default. FOLDER: build/c10d/lib by default, where a GEAR that is installed
# from this folder looks; a site gives gear_mpi/c10d in the installed package. In it, one folder a torch and
# MPI, and one a torch for the emulator. Without a FOLDER, or with --tests, what process_group/tests has in C++ is
# beside it. Prints the library's path. Nothing is compiled if it is up to date. Exit 3: this machine has no mpicxx or
# no torch with its headers.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
module=_c10d
to=
tests=OFF
sanitize=
for argument in "$@"; do
  case $argument in
    --emulator) module=_emu ;;
    --python=*) python=${argument#*=} ;;
    --to=*) to=${argument#*=} ;;
    --sanitize=*) sanitize=${argument#*=} ;;
    --tests) tests=ON ;;
    *) echo "c10d: unknown '$argument': --emulator, --python=, --to=, --sanitize= and --tests are allowed" >&2; exit 2 ;;
  esac
done
if [ -z "$to" ]; then to=build/c10d/lib tests=ON; fi
mpicxx=${MPICXX:-mpicxx}

[ $module = _emu ] || command -v "$mpicxx" >/dev/null || { echo "c10d: no $mpicxx here: install an MPI with its headers, or set MPICXX" >&2; exit 3; }
facts=$("$python" - <<'EOF'
import os, sys, sysconfig
try:
    import torch
except ImportError:
    sys.exit(3)
folder = os.path.dirname(torch.__file__)
if not os.path.exists(os.path.join(folder, "include/torch/csrc/distributed/c10d/Backend.hpp")):
    sys.exit(3)
print(torch.__version__, folder, int(torch._C._GLIBCXX_USE_CXX11_ABI), sysconfig.get_path("include"),
      sysconfig.get_config_var("EXT_SUFFIX"), sep="\n")
EOF
) || { echo "c10d: $python has no torch with headers: pip install torch" >&2; exit 3; }
mapfile -t fact <<<"$facts"
torch=${fact[0]} torch_folder=${fact[1]} abi=${fact[2]} include=${fact[3]} suffix=${fact[4]}
[ -f "$include/Python.h" ] || { echo "c10d: no Python.h in $include: install Python's headers" >&2; exit 3; }

# Which MPI, by its library: "Open MPI v4.1.4" -> open-mpi-4.1.4.
name_mpi() {
  local work
  work=$(mktemp -d)
  cat >"$work/name.cpp" <<'EOF'
#include <mpi.h>
#include <cstdio>
int main() { char text[MPI_MAX_LIBRARY_VERSION_STRING]; int n; MPI_Get_library_version(text, &n); std::puts(text); }
EOF
  "$mpicxx" -DOMPI_SKIP_MPICXX "$work/name.cpp" -o "$work/name"
  version=$("$work/name" | tr '\n\t' '  ')
  rm -rf "$work"
  case $version in
    Open\ MPI\ v*) mpi=open-mpi-$(sed -E 's/^Open MPI v([0-9.]+).*/\1/' <<<"$version") ;;
    MPICH*) mpi=mpich-$(sed -E 's/^MPICH[^0-9]*([0-9.]+).*/\1/' <<<"$version") ;;
    *) mpi=mpi-$(sha256sum <<<"$version" | cut -c 1-8) ;;
  esac
}

if [ $module = _emu ]; then
  mpi=none
  inputs_of=(process_group/src/emu process_group/src/emu_torch process_group/src/ranks csrc/base)
  tests_of=(process_group/tests/emu)
  double=gear_emu_tests
  words=(-DGEAR_EMULATOR=ON)
else
  name_mpi
  inputs_of=(process_group/src/{schedule,ranks,engine,over_mpi,torch} csrc/base csrc/mpi)
  tests_of=(process_group/tests/rehearsal)
  double=_rehearsal$suffix
  words=(-DMPI_CXX_COMPILER="$(command -v "$mpicxx")")
fi
name=torch-${torch}_$mpi${sanitize:+_${sanitize//,/-}} # of the emulator: none
folder=$to/$name
library=$folder/$module$suffix

mkdir -p build "$folder"
folder=$(cd "$folder" && pwd)
exec 9>build/c10d.lock
flock 9
inputs=$({
  echo "$torch_folder $mpi $mpicxx $sanitize $suffix $tests"
  if [ "$tests" = ON ]; then find "${tests_of[@]}" -name '*.cpp' -print0 | sort -z | xargs -0 sha256sum; fi
  find "${inputs_of[@]}" -type f -print0 | sort -z | xargs -0 sha256sum
  sha256sum process_group/CMakeLists.txt tools/c10d.sh
} | sha256sum | cut -d' ' -f1)
if [ -f "$library" ] && [ "$(cat "$folder/stamp" 2>/dev/null)" = "$inputs" ]; then
  echo "$library"
  exit 0
fi
rm -f "$folder/stamp"
generator=()
PATH="$PWD/.venv/bin:$PATH"
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
build=build/c10d/$name
gear_version=$(sed -nE 's/^version = "(.*)"$/\1/p' pyproject.toml)
mkdir -p "$build"
if ! {
  cmake -S process_group -B "$build" "${generator[@]}" "${words[@]}" \
    -DGEAR_VERSION="$gear_version" -DGEAR_TORCH="$torch_folder" -DGEAR_TORCH_ABI="$abi" \
    -DGEAR_PYTHON_INCLUDE="$include" -DGEAR_PYTHON_SUFFIX="$suffix" -DGEAR_SANITIZE="$sanitize" -DGEAR_TESTS="$tests" &&
    cmake --build "$build" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
} >"$build/build.log" 2>&1; then
  grep -E 'error|Error' -A 5 "$build/build.log" | head -60 >&2 || true
  echo "c10d: the build failed: $build/build.log" >&2
  exit 1
fi
cp "$build/$module$suffix" "$library"
if [ "$tests" = ON ] && [ -e "$build/$double" ]; then cp "$build/$double" "$folder/"; fi
if [ $module = _c10d ]; then echo "$version" >"$folder/mpi"; fi
echo "$inputs" >"$folder/stamp"
echo "$library"
