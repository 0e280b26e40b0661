#!/usr/bin/env bash
# A Slurm of two virtual nodes, gear1 and gear2, on this machine, to test the templates of slurm/ on.
#
#   export SLURM_CONF="$(tests/slurm/cluster.sh up)"   starts it, unless it runs; prints where sbatch,
#                                                      srun and the others find it
#   tests/slurm/cluster.sh status                      its nodes and jobs
#   tests/slurm/cluster.sh down                        ends it with all its jobs
#
# Each node has a network, a host name, a /dev/shm and mounts of its own, and shares the file system:
# what is wrong on two machines, such as MASTER_ADDR=localhost, is wrong here. CPUS (4) and GPUS (2,
# devices that compute nothing) say what each node claims to have. Jobs of the partition `standard` preempt
# those of `spare`, which are told 30 s before and requeued. PLACE (0 to 9) tells clusters apart that
# live on one machine at once. Needs root and, on Debian, slurm-wlm munge libpmix2 iproute2 procps. All
# it makes is in /run/gear-slurm-PLACE, but for its networks and /dev/fakegpu*: another Slurm on the
# machine stays as it is.
set -euo pipefail

place=${PLACE:-0}
nodes=(gear1 gear2)
net=10.77.$place
bridge=br-gear$place
state=/run/gear-slurm-$place
cpus=${CPUS:-4}
gpus=${GPUS:-2}
gpu=/dev/fakegpu$place
export SLURM_CONF=$state/slurm.conf

say() { echo "cluster: $*" >&2; }
die() { say "$@"; exit 1; }

check_machine() {
  local tool missing=()
  [ "$(id -u)" = 0 ] || die "making network namespaces needs root: run it with sudo"
  for tool in slurmctld slurmd sinfo munged ip nsenter unshare pgrep mountpoint; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} = 0 ] ||
    die "this machine lacks ${missing[*]}: apt-get install slurm-wlm munge libpmix2 iproute2 procps"
}

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

hosts() {
  echo "127.0.0.1 localhost"
  echo "$net.1 $(hostname)"
  for i in "${!nodes[@]}"; do echo "$net.$((11 + i)) ${nodes[i]}"; done
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

# The namespaces live as long as slurmd and its jobs do; nsenter and not `ip netns exec`, whose new
# /sys hides the control groups that slurmd looks for.
start_node() { # index
  local node=${nodes[$1]} own=${nodes[$1]}-$place
  install -d "$state/$node"
  ip netns add "$own"
  ip link add "v-$own" type veth peer name eth0 netns "$own"
  ip link set "v-$own" master "$bridge" up
  ip -n "$own" addr add "$net.$((11 + $1))/24" dev eth0
  ip -n "$own" link set lo up
  ip -n "$own" link set eth0 up
  # shellcheck disable=SC2016  # expanded by the inner shell
  nsenter --net="/run/netns/$own" unshare --uts --ipc --mount --propagation private sh -euc '
    hostname "$1"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t tmpfs tmpfs "$2/own"
    mount --bind "$2/hosts" /etc/hosts
    mount --bind "$2/resolv.conf" /etc/resolv.conf
    exec slurmd' sh "$node" "$state"
}

# Without a controller sinfo fails, and the count is 0.
num_nodes_up() {
  timeout 3 sinfo --noheader --states=idle,mixed,allocated --Node --format=%N 2>/dev/null |
    sort -u | wc -l || true
}

up() {
  local i node
  check_machine
  exec 9>"$state.lock" # daemons must not inherit it: 9>&-
  flock 9
  if [ -e "$SLURM_CONF" ] && [ "$(num_nodes_up)" = ${#nodes[@]} ]; then
    echo "$SLURM_CONF"
    return 0
  fi
  stop
  install -d "$state"
  # The controller answers nobody while it waits for a disk, which others may keep busy for minutes.
  mount -t tmpfs -o mode=755 tmpfs "$state"
  install -d "$state/log" "$state/controller" "$state/own"
  trap 'tail -n 20 "$state"/log/*.log >&2; stop; say "did not start; the logs are above"' EXIT
  slurm_conf >"$SLURM_CONF"
  hosts >"$state/hosts"
  : >"$state/resolv.conf" # a name server out of reach delays every look-up
  echo "PMIxCliTmpDirBase=$state/own" >"$state/mpi.conf" # the nodes share /tmp
  make_gpus
  start_munge 9>&-
  ip link add "$bridge" type bridge
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  nice -n -5 slurmctld 9>&- # jobs that poll have all cores
  for node in "${!nodes[@]}"; do start_node "$node" 9>&-; done
  for ((i = 0; i < 100; i++)); do
    [ "$(num_nodes_up)" != ${#nodes[@]} ] || break
    sleep 0.2
  done
  [ "$(num_nodes_up)" = ${#nodes[@]} ] || exit 1
  trap - EXIT
  say "${#nodes[@]} nodes of $cpus CPUs and $gpus GPUs that compute nothing"
  echo "$SLURM_CONF"
}

# Everything that runs in the nodes' networks is slurmd's, and its jobs'. What is not there (a network, a
# pid file, a process) has no pids: that is no failure.
pids() {
  local node
  for node in "${nodes[@]}"; do ip netns pids "$node-$place" 2>/dev/null || true; done
  pgrep --pidfile "$state/controller.pid" slurmctld 2>/dev/null || true
  pgrep --pidfile "$state/munge/pid" munged 2>/dev/null || true
}

stop() {
  local node pid signal
  for signal in TERM KILL; do
    for pid in $(pids); do kill "-$signal" "$pid" 2>/dev/null || true; done
    for ((i = 0; i < 30; i++)); do
      [ -n "$(pids)" ] || break
      sleep 0.1
    done
  done
  [ -z "$(pids)" ] || die "processes of the cluster do not end: $(pids | xargs)"
  for node in "${nodes[@]}"; do
    [ ! -e "/run/netns/$node-$place" ] || ip netns del "$node-$place"
    ip link del "v-$node-$place" 2>/dev/null || true # goes with its network, but in its own time
  done
  [ ! -e "/sys/class/net/$bridge" ] || ip link del "$bridge"
  while mountpoint -q "$state"; do umount "$state"; done
  rm -rf "$state" "$gpu"[0-9]
}

case ${1:-} in
  up) up ;;
  down)
    check_machine
    exec 9>"$state.lock"
    flock 9
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
