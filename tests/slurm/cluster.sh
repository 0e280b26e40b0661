#!/usr/bin/env bash
# A Slurm of two virtual nodes, gear1 and gear2, on this machine, to test the templates of slurm/ on.
#
#   export SLURM_CONF="$(tests/slurm/cluster.sh up)"   starts it, unless it runs; prints where sbatch,
#                                                      srun and the others find it
#   tests/slurm/cluster.sh status                      its nodes and jobs
#   tests/slurm/cluster.sh down                        ends it with all its jobs
#
# The nodes are those of tests/nodes/virtual.sh. CPUS (4) and GPUS (2, devices that compute nothing) say what
# each claims to have. Jobs of the partition `standard` preempt those of `spare`, which are told 30 s before
# and requeued. PLACE (0 to 9) tells clusters apart that live on one machine at once. Needs root and, on
# Debian, slurm-wlm munge libpmix2 iproute2 procps. All it makes is in /run/gear-slurm-PLACE, but for its
# networks and /dev/fakegpu*: another Slurm on the machine stays as it is.
set -euo pipefail

place=${PLACE:-0}
nodes=(gear1 gear2)
net=10.77.$place
state=/run/gear-slurm-$place
cpus=${CPUS:-4}
gpus=${GPUS:-2}
gpu=/dev/fakegpu$place
export SLURM_CONF=$state/slurm.conf

# shellcheck source=/dev/null
source "$(dirname "$0")/../nodes/virtual.sh"

check_slurm() { check_machine "slurm-wlm munge libpmix2" slurmctld slurmd sinfo munged; }

slurm_conf() {
  cat <<CONF
ClusterName=gear
SlurmctldHost=$(hostname | cut -d. -f1)($net.1)
SlurmctldPort=$((16817 + place))
SlurmUser=root
SlurmdUser=root
# A job that is requeued waits until its credential has expired: 120 s unless told otherwise.
AuthInfo=socket=$state/munge/socket,cred_expire=5
StateSaveLocation=$state/controller
SlurmdSpoolDir=$state/%n
SlurmctldPidFile=$state/controller.pid
SlurmdPidFile=$state/%n.pid
SlurmctldLogFile=$state/log/controller.log
SlurmdLogFile=$state/log/%n.log
# Portable: no control groups, which want systemd.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
# Cores only: with memory as a resource a job takes a node's whole memory unless it asks for less.
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
KillWait=5
# There is no accounting: finished jobs are shown for so many seconds.
MinJobAge=3600
MailProg=/bin/true
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# A node may claim more cores than the machine has.
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=DEFAULT CPUs=$cpus Boards=1 Sockets=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=8000 $([ "$gpus" = 0 ] || echo "Gres=gpu:$gpus")
$(for i in "${!nodes[@]}"; do echo "NodeName=${nodes[i]} NodeAddr=$net.$((11 + i))"; done)
PartitionName=standard Nodes=ALL Default=YES MaxTime=60 PriorityTier=2 PreemptMode=OFF
PartitionName=spare Nodes=ALL MaxTime=60 PriorityTier=1 GraceTime=30
CONF
}

start_munge() {
  install -d "$state/munge"
  (umask 077 && head -c 128 /dev/urandom >"$state/munge/key")
  munged --key-file="$state/munge/key" --socket="$state/munge/socket" --seed-file="$state/munge/seed" \
    --pid-file="$state/munge/pid" --log-file="$state/log/munge.log"
}

# Fake GPUs are device files, since only those appear in CUDA_VISIBLE_DEVICES.
make_gpus() {
  local number
  : >"$state/gres.conf"
  [ "$gpus" != 0 ] || return 0
  for ((number = 0; number < gpus; number++)); do
    [ -e "$gpu$number" ] || mknod "$gpu$number" c 1 3 # as /dev/null
  done
  echo "Name=gpu File=${gpu}[0-$((gpus - 1))]" >"$state/gres.conf"
}

# Without a controller sinfo fails, and the count is 0.
num_nodes_up() {
  timeout 3 sinfo --noheader --states=idle,mixed,allocated --Node --format=%N 2>/dev/null |
    sort -u | wc -l || true
}

up() {
  local i node
  check_slurm
  lock
  if [ -e "$SLURM_CONF" ] && [ "$(num_nodes_up)" = ${#nodes[@]} ]; then
    echo "$SLURM_CONF"
    return 0
  fi
  stop
  make_network
  install -d "$state/controller"
  trap 'tail -n 20 "$state"/log/*.log >&2; stop; say "did not start; the logs are above"' EXIT
  slurm_conf >"$SLURM_CONF"
  echo "PMIxCliTmpDirBase=$state/own" >"$state/mpi.conf" # the nodes share /tmp
  make_gpus
  start_munge 9>&-
  nice -n -5 slurmctld 9>&- # jobs that poll have all cores
  for node in "${!nodes[@]}"; do start_node "$node" slurmd 9>&-; done
  for ((i = 0; i < 100; i++)); do
    [ "$(num_nodes_up)" != ${#nodes[@]} ] || break
    sleep 0.2
  done
  [ "$(num_nodes_up)" = ${#nodes[@]} ] || exit 1
  trap - EXIT
  say "${#nodes[@]} nodes of $cpus CPUs and $gpus GPUs that compute nothing"
  echo "$SLURM_CONF"
}

pids() {
  node_pids
  # A pid file or a process that is not there has no pids: that is no failure.
  pgrep --pidfile "$state/controller.pid" slurmctld 2>/dev/null || true
  pgrep --pidfile "$state/munge/pid" munged 2>/dev/null || true
}

stop() {
  remove_nodes
  rm -f "$gpu"[0-9]
}

case ${1:-} in
  up) up ;;
  down)
    check_slurm
    lock
    stop
    ;;
  status)
    [ -e "$SLURM_CONF" ] || die "it is not up"
    sinfo --Node --long
    squeue
    ;;
  *)
    echo "usage: tests/slurm/cluster.sh up | down | status" >&2
    exit 2
    ;;
esac
