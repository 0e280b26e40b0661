#!/usr/bin/env bash
# Step smoke: everything that was installed is used once, from the build itself, before it is switched to.
# The programs stay in share/gear/smoke: run them on a compute node after an update of driver, fabric or
# MPI. Sourced by build.sh.

smoke_step() {
  local programs=$BUILD/share/gear/smoke
  run rm -rf "$programs"
  run cp -R "$SOURCE/recipes/smoke" "$programs"
  if ! site_is torch off; then
    smoke torch "$BUILD/bin/python" "$programs/check_torch.py" "$KIND" "$(tool_version cuda)" \
      "$(site cuda_architectures)"
  fi
  smoke gear "$BUILD/bin/python" "$programs/check_gear.py"
  # Also where no ranks are started: imports all, and fails if one does not.
  smoke packages "$BUILD/bin/gear" check --build
  if site_is mpirun off; then
    say "  ranks are not started here (mpirun = off): on a compute node, try"
    say "    srun -n 2 python \$GEAR_HOME/share/gear/smoke/check_mpi4py.py, and check_horovod.py beside it"
  else
    if site_is mpi4py on; then smoke_ranks mpi4py; fi
    if site_is horovod on; then smoke_ranks horovod; fi
  fi
  if site_is deepspeed on; then
    smoke deepspeed env DS_ACCELERATOR=cpu "$BUILD/bin/deepspeed" --num_accelerators 2 \
      --master_port "$(free_port)" "$programs/check_deepspeed.py"
  fi
}

# Nothing of the person who builds gets in: no user site, and a folder of its own for what would be
# compiled, which has to stay empty.
smoke() { # subject command...
  local subject=$1 extensions=$BUILD/work/torch_extensions
  shift
  say "  $subject"
  run rm -rf "$extensions"
  run env OMP_NUM_THREADS=1 "TORCH_EXTENSIONS_DIR=$extensions" WANDB_MODE=offline "$@" ||
    fail "the smoke test of $subject failed" "the log has its output; try: --only smoke"
  if [ -d "$extensions" ]; then fail "the smoke test of $subject compiled something into $extensions"; fi
}

# Two ranks. Open MPI refuses root unless told twice; whoever builds as root has decided that.
smoke_ranks() { # subject
  local launcher=() root=()
  # shellcheck disable=SC2207  # command lines
  launcher=($(site mpirun) -n 2 $(site mpirun_options))
  if [ "$(id -u)" = 0 ]; then root=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1); fi
  smoke "$1, two ranks" env "${root[@]}" "${launcher[@]}" \
    "$BUILD/bin/python" "$BUILD/share/gear/smoke/check_$1.py"
}

free_port() {
  "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
