#!/usr/bin/env bash
# Step preflight: is everything here that the other steps need? Seconds, before hours are spent.
# Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/nccl.sh"

preflight_step() {
  if dry; then
    say "  looks for: room in the prefix, the compilers$(site_is mpi off || printf ', MPI')$([ "$KIND" = cpu ] || printf ', CUDA, NCCL')"
    return 0
  fi
  check_room
  check_stand_on
  check_compiler
  if site_is mpi on; then check_mpi; fi
  if [ "$KIND" = gpu ]; then check_cuda; fi
  check_nccl
  check_tools
  check_wheelhouse
  say "  Python $(tool_version python): $PYTHON"
  check_users
}

# A prefix that is closed is its owner's choice; in one that is open, what is closed is a mistake.
check_users() {
  local said
  said=$(only_for_some)
  if [ -z "$said" ]; then
    return 0
  elif [ -n "$(closed_folder "$PREFIX")" ]; then
    say "  $said"
  else
    complain "  warning: $said"
  fi
}

# Measured: GEAR 0.3 GiB with what compiles it; a base with CPU torch 1.7 GiB, with CUDA's torch 7 GiB.
check_room() {
  local needed=400 room
  if ! site_is torch off && ! base_is_whole; then
    needed=$([ "$KIND" = gpu ] && [ -z "$(site stand_on)" ] && echo 9000 || echo 2200)
  fi
  room=$(room_mib "$BUILD")
  [ "$room" -ge "$needed" ] ||
    fail "too little room in $PREFIX: $room MiB are free, about $needed are needed" \
      "free some, or choose a --prefix on another file system"
}

# pip would put another torch above the one that is there.
check_stand_on() {
  local given
  if [ -z "$(site stand_on)" ]; then return 0; fi
  given=$(given_versions 2>>"$LOG") ||
    fail "what is in stand_on = $(site stand_on) could not be told" "set stand_on to the folder of an environment, the one above bin/python"
  if site_is torch off; then return 0; fi
  given=$(sed -n 's/^torch==//p' <<<"$given")
  [ -n "$given" ] ||
    fail "stand_on = $(site stand_on) has no torch of its own" "set stand_on to the environment that has it, or remove it: then torch is installed"
  if [[ $(site torch) != *+* ]]; then given=${given%%+*}; fi
  site_is torch "$given" ||
    fail "stand_on = $(site stand_on) has torch $given, and torch = $(site torch) in the site file" "set torch = $given"
}

check_compiler() {
  command -v "$(site cxx)" >/dev/null ||
    fail "there is no C++ compiler $(site cxx)" \
      "install it (Debian: g++), load its module (modules in the site file), or set cxx"
  command -v "$(site cc)" >/dev/null ||
    fail "there is no C compiler $(site cc)" \
      "install it (Debian: gcc), load its module (modules in the site file), or set cc"
  printf '#include <concepts>\n#include <span>\nint main() { return std::integral<int> ? 0 : 1; }\n' |
    run "$(site cxx)" -std=c++20 -x c++ -fsyntax-only - ||
    fail "the compiler $(site cxx) ($(tool_version compiler)) does not know C++20" \
      "GCC 11, Clang 14 or later: set cxx, or load a later one (modules in the site file)"
}

check_mpi() {
  local wrapper
  for wrapper in mpicc mpicxx; do
    command -v "$(site "$wrapper")" >/dev/null ||
      fail "there is no MPI compiler $(site "$wrapper")" \
        "load the module of the MPI (modules in the site file), set $wrapper, or mpi = off (then horovod = off, mpi4py = off)"
  done
  mpi_version >/dev/null ||
    fail "$(site mpicc) does not compile a program with mpi.h" \
      "$(site mpicc) -show tells what it calls; set mpicc and mpicxx to the wrappers of a whole MPI"
}

check_cuda() {
  local home
  home=$(site cuda_home)
  [ -x "$home/bin/nvcc" ] ||
    fail "cuda_home = $home has no bin/nvcc" \
      "set cuda_home to the folder of a CUDA toolkit (the one above bin/nvcc), or remove it for a build without CUDA"
  [ -f "$home/include/cuda_runtime.h" ] ||
    fail "cuda_home = $home has no include/cuda_runtime.h" "set cuda_home to a complete CUDA toolkit"
  run "$home/bin/nvcc" --version || fail "$home/bin/nvcc does not run" "it belongs to another machine, or is damaged"
}

# nccl = /path, or NCCL_HOME by a module.
check_nccl() {
  local home
  home=$(site nccl)
  case $home in
    off | wheel | source) return 0 ;;
    module)
      home=${NCCL_HOME:-${NCCL_ROOT:-${EBROOTNCCL:-}}}
      [ -n "$home" ] || fail "nccl = module, but no module has set NCCL_HOME, NCCL_ROOT or EBROOTNCCL" \
        "add NCCL's module to modules in the site file, or set nccl to its path"
      ;;
  esac
  [ -f "$home/include/nccl.h" ] ||
    fail "NCCL in $home has no include/nccl.h" \
      "set nccl in the site file to the folder that has include/nccl.h and lib/libnccl.so, or to wheel"
  nccl_libraries "$home" >/dev/null ||
    fail "NCCL in $home has no lib/libnccl.so" \
      "set nccl in the site file to the folder that has include/nccl.h and lib/libnccl.so, or to wheel"
}

check_tools() {
  local tool
  if site_is horovod off && site_is deepspeed off; then return 0; fi
  for tool in make patch; do
    command -v "$tool" >/dev/null || fail "there is no command '$tool'" "install it (Debian: $tool)"
  done
}

check_wheelhouse() {
  local folder
  folder=$(site wheelhouse)
  [ -z "$folder" ] || [ -d "$folder" ] ||
    fail "wheelhouse = $folder is no folder" "recipes/wheelhouse.py fills one from an installation on a machine with a network"
}
