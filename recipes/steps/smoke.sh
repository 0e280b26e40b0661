#!/usr/bin/env bash
# Step smoke: everything that was installed is used once, from the build itself, before it is switched to.
# The programs stay in share/gear/smoke: run them on a compute node after an update of driver, fabric or
# MPI. Sourced by build.sh.
# shellcheck disable=SC2154  # ordinary is of users.sh

smoke_step() {
  local programs=$BUILD/share/gear/smoke libraries="$BUILD/lib/python3*/site-packages/gear_mpi/c10d" package port gpus said
  run rm -rf "$programs"
  run cp -R "$SOURCE/recipes/smoke" "$programs"
  run chmod -R a+rX "$programs" # a clone may be closed to others
  if ! dry; then
    said=$(no_ordinary_user)
    if [ -n "$said" ]; then say "  by $(id -un), as $said"; else say "  by an ordinary user (number $ORDINARY)"; fi
  fi
  if ! site_is torch off; then
    smoke torch "$BUILD/bin/python" "$programs/check_torch.py" "$KIND" "$(tool_version cuda)" \
      "$(site cuda_architectures)"
    smoke torchrun "$BUILD/bin/torchrun" --standalone --nproc-per-node 2 "$programs/check_torch.py" "$KIND"
    for package in torchvision torchaudio; do
      site_is "$package" off || smoke "$package" "$BUILD/bin/python" "$programs/check_$package.py"
    done
    smoke "torchmetrics and TensorBoard" "$BUILD/bin/python" "$programs/check_tensorboard.py"
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
    if compgen -G "$libraries/*/mpi" >/dev/null; then smoke_ranks gear_mpi; fi
  fi
  if compgen -G "$libraries/*_none/stamp" >/dev/null; then
    smoke "gear_emu, two ranks of 512" "$BUILD/bin/gear" emu run -N 512 --real 0,8 -- "$BUILD/bin/python" "$programs/check_gear_emu.py"
  fi
  if site_is deepspeed on; then
    port=$(free_port)
    gpus=$(usable_gpus)
    if [ -n "$gpus" ]; then
      smoke "deepspeed on the GPUs $gpus" env DS_ACCELERATOR=cuda "$BUILD/bin/deepspeed" --include "localhost:$gpus" \
        --master_port "$port" "$programs/check_deepspeed.py"
    else
      smoke deepspeed env DS_ACCELERATOR=cpu "$BUILD/bin/deepspeed" --num_accelerators 2 \
        --master_port "$port" "$programs/check_deepspeed.py"
    fi
    check_shared_memory "$port"
  fi
}

# By their names, DeepSpeed's buffers would take memory until the machine is started anew.
check_shared_memory() { # port
  local left
  left=$(compgen -G "/dev/shm/deepspeed_*_$1_*" | xargs) || left=
  if [ -n "$left" ]; then
    # shellcheck disable=SC2086  # names without spaces
    rm -f $left
    fail "DeepSpeed has left shared memory behind: $left" "deepspeed_ops = none in the site file does without it"
  fi
}

# Nothing of the person who builds gets in: no user site, a home and a folder for what would be compiled, which
# has to stay empty; and where the builder is root, an ordinary user tries it, for whom it is made. A line
# "warning: ..." of the command is shown.
smoke() { # subject command...
  local subject=$1 place=$SCRATCH/user who=() begin line
  shift
  say "  $subject"
  if ! dry && [ -z "$(no_ordinary_user)" ]; then
    who=("${ordinary[@]}")
    chmod 711 "$SCRATCH"
    if [ -n "$(closed_folder "$SCRATCH")" ]; then place=$BUILD/work/user; fi # a TMPDIR of root's
  fi
  run rm -rf "$place"
  run mkdir -p "$place"
  if [ ${#who[@]} != 0 ]; then
    run chown "$ORDINARY:$ORDINARY" "$place"
    who+=(env -u USER -u LOGNAME -u XDG_CACHE_HOME -u XDG_CONFIG_HOME -u XDG_RUNTIME_DIR "PATH=$(open_path)")
  fi
  dry || begin=$(wc -c <"$LOG")
  run "${who[@]}" env -C "$place" "HOME=$place" "TMPDIR=$place" OMP_NUM_THREADS=1 \
    "TORCH_EXTENSIONS_DIR=$place/torch_extensions" WANDB_MODE=offline "$@" ||
    fail "the smoke test of $subject failed" "the log has its output; try: --only smoke"
  if [ -d "$place/torch_extensions" ]; then fail "the smoke test of $subject compiled something"; fi
  if dry; then return 0; fi
  while IFS= read -r line; do complain "  $line"; done < <(tail -c "+$((begin + 1))" "$LOG" | grep '^warning: ')
}

# Two ranks, also on one core: Open MPI 4 and 5 are told that they may share it. Open MPI refuses root unless told
# twice; whoever builds as root has decided that.
smoke_ranks() { # subject
  local launcher=() root=()
  # shellcheck disable=SC2207  # command lines
  launcher=($(site mpirun) -n 2 $(site mpirun_options))
  if [ "$(id -u)" = 0 ] && [ -n "$(no_ordinary_user)" ]; then root=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1); fi
  smoke "$1, two ranks" env "${root[@]}" OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none "${launcher[@]}" \
    "$BUILD/bin/python" "$BUILD/share/gear/smoke/check_$1.py"
}

# For whoever tries the installation, as usable_gpus.py says; a dry run has those of a node with two.
usable_gpus() {
  local who=()
  if [ "$KIND" = cpu ]; then return 0; fi
  if dry; then
    echo 0,1
    return 0
  fi
  if [ -z "$(no_ordinary_user)" ]; then who=("${ordinary[@]}"); fi
  "${who[@]}" "$BUILD/bin/python" "$BUILD/share/gear/smoke/usable_gpus.py" "$(site cuda_architectures)" 2>>"$LOG" ||
    complain "  warning: which GPUs are here could not be told: the log says why"
}

free_port() {
  if dry; then # the site's Python need not be here
    echo 29500
    return 0
  fi
  "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
