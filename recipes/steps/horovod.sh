#!/usr/bin/env bash
# Step horovod: compiled against torch, the site's MPI and, where there is CUDA, its NCCL. Elastic mode
# is taken out by a patch, and Gloo off unless the site asks for it: CVE-2024-10190. Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/nccl.sh"
# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

horovod_step() {
  local options
  mapfile -t options < <(horovod_options)
  record_option horovod "${options[@]}"
  record_source horovod
  wheel_of horovod make_horovod "${options[@]//$LAYER/}" "$(mpi_compiler_says)" \
    "torch $(dry || installed_version torch)" "NCCL $(nccl_version)"
  pip install "$WHEEL" "torch==$(site torch)" || fail "Horovod was built, but could not be installed"
  run "$LAYER/bin/horovodrun" --check-build || fail "Horovod was installed, but does not import"
}

# What its CMake and setup.py read from the environment.
horovod_options() {
  printf '%s\n' HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_MPI=1 HOROVOD_CPU_OPERATIONS=MPI HOROVOD_WITHOUT_NVTX=1
  echo "GEAR_MPICXX=$(command -v "$(site mpicxx)" || site mpicxx)"
  if site_is horovod_gloo on; then echo HOROVOD_WITH_GLOO=1; else echo HOROVOD_WITHOUT_GLOO=1; fi
  if [ "$KIND" = gpu ]; then
    echo "HOROVOD_CUDA_HOME=$(site cuda_home)"
    echo "HOROVOD_BUILD_CUDA_CC_LIST=$(site cuda_architectures | tr ';' ,)"
    if site_is nccl off; then
      echo HOROVOD_GPU_OPERATIONS=MPI
    else
      printf '%s\n' HOROVOD_GPU_OPERATIONS=NCCL "HOROVOD_NCCL_HOME=$LAYER/nccl" HOROVOD_NCCL_LINK=shared
    fi
  fi
  # GCC 13 no longer includes these by the way; CMake 4 refuses the age of third_party/.
  echo "CXXFLAGS=${CXXFLAGS:+$CXXFLAGS }-include cstdint -include stdexcept -include string"
  echo CMAKE_POLICY_VERSION_MINIMUM=3.5
}

make_horovod() { # folder
  local options
  mapfile -t options < <(horovod_options)
  unpack_source horovod
  build_wheel "$1" "$LAYER/work/horovod/source" "${options[@]}" ||
    fail "Horovod could not be compiled" "horovod = off in the site file leaves it out"
}
