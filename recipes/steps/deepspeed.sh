#!/usr/bin/env bash
# Step deepspeed: with the parts of deepspeed_ops compiled now, so that no job compiles: a patch makes
# jobs refuse to, unless they set GEAR_DEEPSPEED_JIT=1. Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

deepspeed_step() {
  local options
  mapfile -t options < <(deepspeed_options)
  record_option deepspeed "${options[@]}"
  record_source deepspeed
  wheel_of deepspeed make_deepspeed "${options[@]}" "torch $(dry || installed_version torch)" "$(processor)"
  pip install "$WHEEL" "torch==$(site torch)" || fail "DeepSpeed was built, but could not be installed"
}

deepspeed_options() {
  local op
  echo DS_BUILD_OPS=0
  if ! site_is deepspeed_ops none; then
    for op in $(site deepspeed_ops); do echo "DS_BUILD_${op^^}=1"; done
  fi
  if [ "$KIND" = gpu ]; then
    echo DS_ACCELERATOR=cuda
    echo "TORCH_CUDA_ARCH_LIST=$(site cuda_architectures | sed -E 's/([0-9]+)([0-9])([af]?)/\1.\2\3/g')"
  else
    echo DS_ACCELERATOR=cpu
  fi
}

# All but shm_comm may be compiled for the very processor that compiles them.
processor() {
  case $(site deepspeed_ops) in
    none | shm_comm) ;;
    *) sed -n 's/^\(model name\|flags\|CPU part\)[[:space:]]*: //p' /proc/cpuinfo | sort -u ;;
  esac
}

make_deepspeed() { # folder
  local options
  mapfile -t options < <(deepspeed_options)
  unpack_source deepspeed
  build_wheel "$1" "$LAYER/work/deepspeed/source" "${options[@]}" DS_ENABLE_NINJA=1 ||
    fail "DeepSpeed could not be compiled with deepspeed_ops = $(site deepspeed_ops)" \
      "deepspeed_ops = none in the site file compiles none of it"
}
