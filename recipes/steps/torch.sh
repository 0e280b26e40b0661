#!/usr/bin/env bash
# Step torch: torch, and the NCCL of the site in it. Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/nccl.sh"

torch_step() {
  local torch
  torch=torch==$(site torch)
  # An index of torch's makers holds torch itself, of the right kind; all else comes from the site's.
  if [ -n "$(site torch_index)" ]; then
    pip install --no-deps --index-url "$(site torch_index)" "$torch" ||
      fail "$torch could not be installed from $(site torch_index)" \
        "an index for CUDA 13 ends in /whl/cu130, one for CPUs in /whl/cpu: correct torch_index in the site file"
  fi
  pip install "$torch" || fail "$torch could not be installed"
  run "$LAYER/bin/python" "$SOURCE/recipes/smoke/check_torch.py" "$KIND" "$(tool_version cuda)" \
    "$(site cuda_architectures)" ||
    fail "torch was installed, but it is not what a $KIND installation needs" \
      "set torch_index in the site file to the index of the build that fits: /whl/cpu, or /whl/cuXYZ of this CUDA"
  if [ "$KIND" = gpu ]; then nccl_in_place; fi
}
