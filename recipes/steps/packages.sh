#!/usr/bin/env bash
# Step packages: what GEAR needs, and, beside torch, what training is watched and configured with:
# torchmetrics, TensorBoard with its profiler plugin, Hydra, Weights & Biases. Sourced by build.sh.

packages_step() {
  local packages
  mapfile -t packages < <(gear_requirements)
  if ! site_is torch off; then
    mapfile -t -O "${#packages[@]}" packages < <(torch_requirements)
    packages+=(torchmetrics tensorboard torch-tb-profiler hydra-core wandb)
  fi
  pip install "${packages[@]}" || fail "the packages that GEAR needs could not be installed" \
    "requirements/constraints.txt and site.txt have their versions"
}
