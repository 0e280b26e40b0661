#!/usr/bin/env bash
# Step mpi4py: compiled against the site's MPI, and no other. Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

mpi4py_step() {
  record_option mpi4py "MPI4PY_BUILD_MPICC=$(site mpicc)" MPI4PY_BUILD_MPIABI=0
  record_source mpi4py
  wheel_of mpi4py make_mpi4py "$(mpi_compiler_says)"
  pip install --no-deps "$WHEEL" || fail "mpi4py was built, but could not be installed"
}

make_mpi4py() { # folder
  local work=$BUILD/work/mpi4py
  unpack_source mpi4py
  # Needed to compile it, and by nothing that is installed.
  pip install --target "$work/tools" cython || fail "Cython, which mpi4py is compiled with, could not be had"
  build_wheel "$1" "$work/source" "PYTHONPATH=$work/tools" "MPI4PY_BUILD_MPICC=$(site mpicc)" \
    MPI4PY_BUILD_MPIABI=0 ||
    fail "mpi4py could not be compiled with $(site mpicc)" "$(site mpicc) -show tells what it calls"
}
