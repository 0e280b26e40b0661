#!/usr/bin/env bash
# Step mpi4py: compiled against the site's MPI, and no other. Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

mpi4py_step() {
  local options
  mapfile -t options < <(mpi4py_options)
  record_option mpi4py "${options[@]}"
  record_source mpi4py
  wheel_of mpi4py make_mpi4py "${options[@]}" "$(mpi_compiler_says)"
  pip install --no-deps "$WHEEL" || fail "mpi4py was built, but could not be installed"
}

# One C file of 327,000 lines that passes calls on: 108 s to compile at -O1, 135 s at -O2.
mpi4py_options() {
  printf '%s\n' "MPI4PY_BUILD_MPICC=$(site mpicc)" MPI4PY_BUILD_MPIABI=0 "CFLAGS=-O1 -g0"
}

make_mpi4py() { # folder
  local work=$LAYER/work/mpi4py options
  mapfile -t options < <(mpi4py_options)
  unpack_source mpi4py
  # Needed to compile it, and by nothing that is installed.
  pip install --target "$work/tools" cython || fail "Cython, which compiles mpi4py, could not be installed"
  build_wheel "$1" "$work/source" "PYTHONPATH=$work/tools" "${options[@]}" ||
    fail "mpi4py could not be compiled with $(site mpicc)" "$(site mpicc) -show tells what it calls"
}
