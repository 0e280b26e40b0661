#!/usr/bin/env bash
# Makes .venv with GEAR built and installed in it (editable: Python changes need no rebuild).
#
#   tools/setup.sh train     what `gear train` needs
#   tools/setup.sh dev       that, and what `make test` needs (the default)
#
# Nothing is done when nothing changed: .venv/gear-<level>.stamp holds a hash of the build's inputs.
# PYTHON=/path/to/python chooses the interpreter (tools/find_python.sh). What comes from the
# distribution is installed if this is root, else named (tools/debian_packages.sh).
#
# CUDA: GPU code is compiled where there is a GPU; without an nvcc, `train` does without it and `dev` takes
# one from PyPI. GEAR_WITH_CUDA=OFF, AUTO (if there is an nvcc) or ON says otherwise;
# GEAR_CUDA_ARCHITECTURES="90" says what to compile for.
# MPI: the transport mpi is built where there is an mpicxx; GEAR_WITH_MPI=OFF builds without.
set -euo pipefail
cd "$(dirname "$0")/.."

level=${1:-dev}
torch="torch==2.13.0"
case $level in
  train) extras=train ;;
  dev) extras=train,dev ;;
  *) echo "setup: unknown level '$level': train or dev" >&2; exit 2 ;;
esac

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# What to compile GPU code for while developing: the GPUs here, else the first of those that a release is
# built for (CMakeLists.txt).
cuda_architectures() {
  local here=""
  if [ -n "${GEAR_CUDA_ARCHITECTURES:-}" ]; then echo "$GEAR_CUDA_ARCHITECTURES"; return; fi
  if command -v nvidia-smi >/dev/null; then
    here=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
      grep -x '[0-9]*\.[0-9]' | tr -d . | sort -nu | paste -sd ';') || here=""
  fi
  echo "${here:-75}"
}

gpu_is_here() { [[ "$(nvidia-smi -L 2>/dev/null)" == GPU* ]]; }

with_cuda() {
  if [ -n "${GEAR_WITH_CUDA:-}" ]; then echo "$GEAR_WITH_CUDA"
  elif ! gpu_is_here; then echo OFF
  elif [ "$level" = dev ]; then echo ON
  else echo AUTO; fi
}

build_inputs_hash() {
  {
    echo "$level $(with_cuda) $(cuda_architectures) $(tools/find_nvcc.sh || echo none)"
    echo "${GEAR_WITH_MPI:-} $(command -v mpicxx || echo none)"
    .venv/bin/python -c 'import sys; print(sys.version, sys.base_prefix)'
    find csrc cmake CMakeLists.txt pyproject.toml requirements tools/setup.sh -type f -print0 |
      sort -z | xargs -0 sha256sum
    find gear process_group/python -name '*.py' | sort # an editable install keeps a list of them
  } | sha256sum | cut -d' ' -f1
}

up_to_date() {
  local other cuda
  [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null || return 1
  for other in "$level" dev; do # dev contains train
    [ -f ".venv/gear-$other.stamp" ] || continue
    for cuda in "$(with_cuda)" "${GEAR_WITH_CUDA:-ON}"; do # and ON, which make test-nightly asks for, OFF
      [ "$(cat ".venv/gear-$other.stamp")" = "$(level=$other GEAR_WITH_CUDA=$cuda build_inputs_hash)" ] && return 0
    done
  done
  return 1
}

have_cmake() {
  command -v cmake >/dev/null && cmake -E capabilities 2>/dev/null | grep -q '"minor":2[0-9]\|"minor":3[0-9]\|"major":[4-9]'
}

mkdir -p build
exec 9>build/setup.lock
flock 9

if [ "$level" = dev ]; then tools/debian_packages.sh dev; fi # tests may lack some, .venv or not
if up_to_date; then
  say "nothing to do (.venv is up to date)"
  exit 0
fi
if [ "$level" = train ]; then tools/debian_packages.sh train; fi

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  python=$(tools/find_python.sh) || die "no suitable Python found"
  say "making .venv with $("$python" --version) ($python)"
  rm -rf .venv
  "$python" -m venv .venv
fi

# pip makes an environment of its own for each package that it builds: by these, that one has the
# versions that constraints.txt names, too. pips before 25.3 know the first only, later ones the second.
export PIP_CONSTRAINT="requirements/constraints.txt${PIP_CONSTRAINT:+ $PIP_CONSTRAINT}"
export PIP_BUILD_CONSTRAINT="requirements/constraints.txt${PIP_BUILD_CONSTRAINT:+ $PIP_BUILD_CONSTRAINT}"
pip() { .venv/bin/python -m pip --disable-pip-version-check -qq "$@"; }

started=$SECONDS
rm -f .venv/gear-*.stamp
say "installing what GEAR needs, and compiling it meanwhile (the first time takes minutes)"
build_requirements=(scikit-build-core pybind11)
have_cmake || build_requirements+=(cmake)
command -v ninja >/dev/null || build_requirements+=(ninja)
pip install "${build_requirements[@]}" || die "pip failed; what it said is above"

cuda=$(with_cuda)
if [ "$cuda" != OFF ]; then
  if [ "$level" = dev ]; then tools/install_nvcc.sh; fi
  if nvcc=$(tools/find_nvcc.sh); then
    export CUDACXX=$nvcc
    say "GPU code by $nvcc for compute capability $(cuda_architectures)"
  elif [ "$level" = train ]; then
    say "no CUDA compiler here: building for the CPU alone. With a GPU, set CUDACXX to an nvcc"
  fi
elif [ -z "${GEAR_WITH_CUDA:-}" ]; then
  say "no GPU here: building for the CPU alone (GEAR_WITH_CUDA=AUTO builds GPU code where there is an nvcc)"
fi
CMAKE_ARGS="${CMAKE_ARGS:-} -DGEAR_WITH_CUDA=$cuda -DGEAR_CUDA_ARCHITECTURES=$(cuda_architectures)"
CMAKE_ARGS+=" -DGEAR_WITH_MPI=${GEAR_WITH_MPI:-AUTO} -DGEAR_BUILD_TESTS=OFF"
# ccache and its like would refuse what was compiled with headers compiled beforehand.
[ -n "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] || CMAKE_ARGS+=" -DGEAR_HEADERS_ONCE=ON"
export CMAKE_ARGS CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
export PATH="$PWD/.venv/bin:$PATH"

# pip works on one core and waits for the network. What this compiles is in the build folder when pip
# builds GEAR there; if it fails, so will pip, and shows why.
rm -rf build/meanwhile
mkdir build/meanwhile
setsid python -c 'from scikit_build_core.build import build_editable; build_editable("build/meanwhile")' \
  >build/compile.log 2>&1 9>&- &
compiling=$!
trap 'kill -- "-$compiling" 2>/dev/null || true' EXIT
# Python compiles a module when it is first imported: most of these never are.
python tools/dependencies.py "$extras" >build/requirements.txt
pip install --no-compile "$torch" -r build/requirements.txt ||
  die "the requirements could not be installed; what pip said is above"
wait "$compiling" || true
trap - EXIT
pip install --no-build-isolation --no-deps -e . || die "GEAR could not be built; its output is above"
(cd build && ../.venv/bin/python -c 'import gear') || die "GEAR was built but does not import"
build_inputs_hash >".venv/gear-$level.stamp"
say "done in $((SECONDS - started)) s"
