#!/usr/bin/env bash
# Step torch: torch, torchvision and torchaudio where the site wants them, and the NCCL of the site in torch.
# Sourced by build.sh.

# shellcheck source=/dev/null
. "$SOURCE/recipes/nccl.sh"

torch_step() {
  local packages package
  mapfile -t packages < <(torch_requirements)
  # An index of torch's makers holds these, of the right kind; all else comes from the site's.
  if [ -n "$(site torch_index)" ]; then
    pip install --no-deps --index-url "$(site torch_index)" "${packages[@]}" ||
      fail "${packages[*]} could not be installed from $(torch_place)" \
        "an index for CUDA 13 ends in /whl/cu130, one for CPUs in /whl/cpu: correct torch_index in the site file, or leave out what it lacks (torchvision = off, torchaudio = off)"
  fi
  pip install "${packages[@]}" || fail "${packages[*]} could not be installed"
  run "$LAYER/bin/python" "$SOURCE/recipes/smoke/check_torch.py" "$KIND" "$(tool_version cuda)" \
    "$(site cuda_architectures)" ||
    fail "torch was installed, but it is not what a $KIND installation needs" \
      "set torch_index in the site file to the index of the build that fits: /whl/cpu, or /whl/cuXYZ of this CUDA"
  for package in torchvision torchaudio; do
    if site_is "$package" off; then continue; fi
    run "$LAYER/bin/python" "$SOURCE/recipes/smoke/check_$package.py" ||
      fail "$package was installed, but it does not run with this torch" \
        "set torch_index in the site file to an index that has both, of one kind (/whl/cpu, /whl/cuXYZ), or $package = off"
  done
  if [ "$KIND" = gpu ]; then nccl_in_place; fi
}

torch_place() {
  local house
  house=$(site wheelhouse)
  printf '%s' "${house:-$(site torch_index)}"
}
