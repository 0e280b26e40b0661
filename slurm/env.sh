#!/usr/bin/env bash
# How the tasks of a Slurm job find each other: the one place that derives it.
#
#   source "$GEAR_HOME/slurm/env.sh"             in the batch script, before srun
#   srun "$GEAR_HOME/slurm/env.sh" COMMAND ...   in each task: sets what is below, becomes COMMAND
#   ... || "$GEAR_HOME/slurm/env.sh" --ended $?  after srun: has Slurm start the job again where the
#                                                ranks saved and said that they go on (exit code 75)
#
# The batch script, and so its tasks, get
#   MASTER_ADDR, MASTER_PORT                the first node of the job, and a port that is free there
#   GEAR_JOB_NODES                          its first two nodes, for what follows
#   GEAR_REQUEUED                           checkpoint=auto in a job that was requeued, else nothing
#   SLURM_CPU_BIND                          cores, where the cluster can bind tasks to CPUs
#   SLURM_WAIT, SLURM_KILL_BAD_EXIT         a minute after its first task has ended, srun ends the others;
#                                           not at once: ranks that save and stop do not end together
# and each task
#   RANK, WORLD_SIZE, LOCAL_RANK            its number, how many there are, its number on the node
#   NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME  the network interface that leads to the other nodes
#   OMP_NUM_THREADS, GEAR_NUM_THREADS       the CPUs of a rank, at most 16 for GEAR
#   TMPDIR                                  a folder for temporary files on its own node
# `env.sh --ranks N torchrun ...` is for a command that starts N ranks itself, one task on each node: the
# ranks share the task's CPUs, and torchrun finds in PET_* the other nodes and how many ranks to start.
# GPUs are bound as the job asks. Without a word a task sees all of the job's on its node, and device=cuda
# takes the one of its LOCAL_RANK; with --gpus-per-task=1 or --gpu-bind it sees its own, and takes that. To
# bind them here, or to lift a binding, would be wrong: where Slurm does not close the devices of others to a
# job, SLURM_GPU_BIND shows those, too.
# With GEAR_CONTAINER, an Apptainer image, each task becomes the command inside it; all else is the node's own.
# Interfaces, binding and threads that are set already stay as they are. TMPDIR is the first folder that
# can be written to of GEAR_SCRATCH (which has to be one), SLURM_TMPDIR, TMPDIR and /tmp.
if [ -z "${BASH_VERSION:-}" ]; then
  echo "[slurm] env.sh is for bash: source it from a script that begins with #!/bin/bash" >&2
  return 2
elif [ "${BASH_SOURCE[0]}" != "$0" ]; then
  unset MASTER_ADDR MASTER_PORT GEAR_REQUEUED
  GEAR_JOB=$("$BASH" "${BASH_SOURCE[0]}" --job) || return
  eval "$GEAR_JOB"
  unset GEAR_JOB
  return
fi
set -euo pipefail

refuse() {
  echo "[slurm] $*" >&2
  exit 2
}

# ---- in the batch script: prints what it shall export ----

job() {
  local nodes names first port config requeued='' bind=''
  [ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_NODELIST:-}" ] ||
    refuse "this is no Slurm job: SLURM_JOB_ID or SLURM_JOB_NODELIST is not set; submit the script" \
      "with sbatch, or ask for nodes with salloc"
  [ -z "${GEAR_CONTAINER:-}" ] || [ -z "${GEAR_VENV:-}" ] ||
    refuse "GEAR_CONTAINER=$GEAR_CONTAINER and GEAR_VENV=$GEAR_VENV are both set, and the venv extends" \
      "the module of the nodes: unset one of them"
  # The list of a heterogeneous job is that of its first component.
  nodes=$SLURM_JOB_NODELIST${SLURM_JOB_NODELIST_HET_GROUP_1:+,$SLURM_JOB_NODELIST_HET_GROUP_1}
  names=$(scontrol show hostnames "$nodes") ||
    refuse "scontrol does not understand SLURM_JOB_NODELIST=$nodes of job $SLURM_JOB_ID:" \
      "its message is above"
  mapfile -t names <<<"$names"
  first=${names[0]}
  port=$(free_port "$first") ||
    refuse "no free port on $first, where the ranks meet: python3 did not find one, its message is" \
      "above; load the module gear first, or, with GEAR_CONTAINER, any Python 3"
  if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then
    requeued=checkpoint=auto
    echo "[slurm] job $SLURM_JOB_ID was requeued (restart $SLURM_RESTART_COUNT): it goes on from its last" \
      "checkpoint, if it had written one: $requeued" >&2
  fi
  if [ -z "${SLURM_CPU_BIND:-}" ]; then
    config=$(scontrol show config) ||
      echo "[slurm] scontrol does not show the cluster's configuration (its message is above):" \
        "tasks are not bound to CPUs; export SLURM_CPU_BIND=cores where they can be" >&2
    ! grep -qE '^TaskPlugin .*(affinity|cgroup)' <<<"$config" || bind=cores
  fi
  # Slurm before 23.11 does not tell srun of --cpus-per-task, and after `sbatch --export=NONE` srun
  # would keep all of this from the tasks.
  printf 'export %s=%q\n' MASTER_ADDR "$first" MASTER_PORT "$port" GEAR_JOB_NODES "${names[*]:0:2}" \
    SLURM_WAIT 60 SLURM_KILL_BAD_EXIT 0 \
    ${requeued:+GEAR_REQUEUED "$requeued"} ${bind:+SLURM_CPU_BIND "$bind"} \
    ${SLURM_CPUS_PER_TASK:+SRUN_CPUS_PER_TASK "$SLURM_CPUS_PER_TASK"} SLURM_EXPORT_ENV ALL
}

# Below 32768, from where Linux takes ports for connections that go out; jobs start far apart.
free_port() { # node
  local there=()
  [ "${SLURMD_NODENAME:-}" = "$1" ] || # salloc gives a shell on the login node
    there=(srun --nodes=1 --ntasks=1 --overlap --quiet --nodelist="$1")
  "${there[@]}" python3 -c '
import socket, sys
for step in range(12000):
    port = 20000 + (int(sys.argv[1]) * 101 + step) % 12000
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            continue
    print(port)
    sys.exit()
sys.exit("every port from 20000 to 31999 is taken")' "$SLURM_JOB_ID" </dev/null
}

# ---- in the batch script, after srun ----

ended() { # exit code
  if [ "$1" = 75 ]; then
    local job=$SLURM_JOB_ID # of the last task of an array, that is the number of the whole array
    [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    scontrol requeue "$job" ||
      refuse "job $SLURM_JOB_ID saved its state, and Slurm does not start it again (its message is" \
        "above): submit it once more with checkpoint=auto"
    echo "[slurm] job $SLURM_JOB_ID saved its state and goes on when Slurm starts it again" >&2
    exec sleep infinity # Slurm ends this script; an end of its own would be the end of the job
  elif [ "$1" = 138 ]; then
    refuse "SIGUSR1 came to job $SLURM_JOB_ID before its ranks had begun: give it more --time, or" \
      "--signal=USR1@ fewer seconds before the end"
  fi
  exit "$1"
}

# ---- in a task: becomes the command ----

task() {
  local ranks=1 starts_ranks=
  if [ "$1" = --ranks ]; then
    starts_ranks=yes
    [[ ${2:-} =~ ^[1-9][0-9]*$ ]] && [ $# -ge 3 ] ||
      refuse "--ranks ${2:-}: the number of ranks that the command starts on each node, and the" \
        "command, as in env.sh --ranks 4 torchrun ..."
    ranks=$2
    shift 2
  fi
  [ -n "${SLURM_STEP_ID:-}" ] && [ -n "${SLURM_PROCID:-}" ] ||
    refuse "this is no task of a job step: SLURM_STEP_ID or SLURM_PROCID is not set; start it by" \
      "srun: srun $0 $*"
  [ -n "${MASTER_ADDR:-}" ] && [ -n "${MASTER_PORT:-}" ] && [ -n "${GEAR_JOB_NODES:-}" ] ||
    refuse "MASTER_ADDR, MASTER_PORT or GEAR_JOB_NODES is not set: write 'source $0' into the batch" \
      "script before srun"
  [ "$SLURM_PROCID" != 0 ] || [ "$SLURMD_NODENAME" = "$MASTER_ADDR" ] ||
    refuse "the ranks could not meet: rank 0 runs on $SLURMD_NODENAME and MASTER_ADDR is" \
      "$MASTER_ADDR; leave MASTER_ADDR as env.sh sets it, and start the step on the job's first node"
  getent ahosts "$MASTER_ADDR" >/dev/null ||
    refuse "the ranks could not meet: the job's first node has no address on $SLURMD_NODENAME, where" \
      "'getent ahosts $MASTER_ADDR' finds none; tell the site's support"
  if [ -n "${GEAR_CONTAINER:-}" ]; then
    check_container
  else
    command -v "$1" >/dev/null ||
      refuse "there is no command $1 on $SLURMD_NODENAME: load the module gear, or activate a venv" \
        "that extends it, from a file system that all nodes see"
  fi
  export RANK=$SLURM_PROCID WORLD_SIZE=${SLURM_STEP_NUM_TASKS:-$SLURM_NTASKS} LOCAL_RANK=$SLURM_LOCALID
  if [ -n "$starts_ranks" ]; then
    export PET_NNODES=$WORLD_SIZE PET_NODE_RANK=$RANK PET_NPROC_PER_NODE=$ranks
    export PET_MASTER_ADDR=$MASTER_ADDR PET_MASTER_PORT=$MASTER_PORT
    unset RANK WORLD_SIZE LOCAL_RANK
  fi

  local cpus=$((${SLURM_CPUS_PER_TASK:-1} / ranks))
  [ "$cpus" -gt 0 ] || cpus=1
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}
  export GEAR_NUM_THREADS=${GEAR_NUM_THREADS:-$((cpus < 16 ? cpus : 16))}
  export TMPDIR
  TMPDIR=$(scratch)
  choose_interfaces
  [ "$SLURM_PROCID" != 0 ] || tell "$((${SLURM_STEP_NUM_TASKS:-$SLURM_NTASKS} * ranks))"
  # with-gear, of the image, loads its module. --nv: the node's driver.
  [ -z "${GEAR_CONTAINER:-}" ] ||
    set -- apptainer exec ${CUDA_VISIBLE_DEVICES:+--nv} --bind "$TMPDIR" "$GEAR_CONTAINER" with-gear "$@"
  exec "$@"
}

check_container() {
  command -v apptainer >/dev/null ||
    refuse "GEAR_CONTAINER=$GEAR_CONTAINER, and there is no command apptainer on $SLURMD_NODENAME: load" \
      "its module before sbatch, or unset GEAR_CONTAINER and load the module gear"
  [ -r "$GEAR_CONTAINER" ] ||
    refuse "GEAR_CONTAINER=$GEAR_CONTAINER is no file that can be read on $SLURMD_NODENAME: name an image" \
      "on a file system that all nodes see"
}

scratch() {
  local folder
  for folder in "${GEAR_SCRATCH:-}" "${SLURM_TMPDIR:-}" "${TMPDIR:-}" /tmp; do
    if [ -d "$folder" ] && [ -w "$folder" ] && has_room "$folder"; then
      echo "$folder"
      return
    fi
    [ -z "${GEAR_SCRATCH:-}" ] ||
      refuse "GEAR_SCRATCH=$GEAR_SCRATCH is no folder with write access and room on" \
        "$SLURMD_NODENAME: name one that is on every node, make room in it, or unset it"
  done
  refuse "no folder for temporary files on $SLURMD_NODENAME: none of SLURM_TMPDIR, TMPDIR and /tmp" \
    "can be written to and has room; name one in GEAR_SCRATCH"
}

# A full disk lets you make a file, and refuses what you write into it.
has_room() { # folder
  local file written=0
  file=$(mktemp "$1/.gear-room-XXXXXX" 2>/dev/null) || return
  head -c 65536 /dev/zero 2>/dev/null >"$file" || written=1
  rm -f "$file"
  return "$written"
}

# What gloo and NCCL take by themselves may lead nowhere: a host name that means 127.0.1.1, a virtual
# bridge, the management network.
choose_interfaces() {
  local first second other interface
  read -r first second <<<"$GEAR_JOB_NODES"
  [ -n "$second" ] || return 0 # one node
  [ -z "${GLOO_SOCKET_IFNAME:-}" ] || [ -z "${NCCL_SOCKET_IFNAME:-}" ] || return 0
  other=$first
  [ "$SLURMD_NODENAME" != "$first" ] || other=$second
  interface=$(interface_to "$other") ||
    refuse "no network interface leads from $SLURMD_NODENAME to $other: 'ip route get' names none;" \
      "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the interface"
  export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$interface}
  export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$interface}
}

interface_to() { # node
  local address route
  address=$(getent ahosts "$1") && # errexit is off here: the caller has a word to say
    route=$(PATH=$PATH:/usr/sbin:/sbin ip -oneline route get "${address%% *}") &&
    [[ $route =~ \ dev\ ([^ ]+) ]] && echo "${BASH_REMATCH[1]}"
}

tell() { # ranks
  local by="" gpus=""
  [ -z "${GLOO_SOCKET_IFNAME:-}" ] || by=" by $GLOO_SOCKET_IFNAME (NCCL: ${NCCL_SOCKET_IFNAME:-any})"
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    gpus=${CUDA_VISIBLE_DEVICES//[^,]/} # a comma less than numbers
    gpus=", GPUs that a rank sees: $((${#gpus} + 1))"
  fi
  echo "[slurm] job $SLURM_JOB_ID: ranks: $1, nodes: ${SLURM_STEP_NUM_NODES:-$SLURM_NNODES}," \
    "meeting at $MASTER_ADDR:$MASTER_PORT$by, threads of a rank: $OMP_NUM_THREADS$gpus," \
    "temporary files: $TMPDIR" >&2
}

usage() { sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"; }

case ${1:-} in
  --job) job ;;
  --ended) ended "${2:?the exit code of srun}" ;;
  --help) usage ;;
  --ranks) task "$@" ;;
  "" | -*)
    usage >&2
    exit 2
    ;;
  *) task "$@" ;;
esac
