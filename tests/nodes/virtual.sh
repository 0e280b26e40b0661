# shellcheck shell=bash
# Virtual nodes of this machine, for scripts that source this: each has a network, a host name, a
# /dev/shm and mounts of its own, and shares the file system. What is wrong on two machines, such as
# MASTER_ADDR=localhost, is wrong here. Needs root and, on Debian, iproute2 and procps.
#
# The script sets, before it calls any of these:
#   place   0 to 9, which tells those apart that live on one machine at once
#   nodes   the names of the nodes
#   net     the first three numbers of their addresses: this machine is 1, the nodes are 11 and on
#   state   a folder for all that is made; it lies in memory
# shellcheck disable=SC2154

bridge=br-$(basename "$state")

say() { echo "nodes: $*" >&2; }
die() { say "$@"; exit 1; }

check_machine() { # packages of Debian, tools...
  local tool missing=()
  [ "$(id -u)" = 0 ] || die "making network namespaces needs root: run it with sudo"
  for tool in ip nsenter unshare pgrep mountpoint flock "${@:2}"; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} = 0 ] || die "this machine lacks ${missing[*]}: apt-get install $1 iproute2 procps"
}

# One script at a time; daemons that it starts must not inherit it: 9>&-
lock() {
  exec 9>"$state.lock"
  flock 9
}

# The folder, and the network that the nodes will join.
make_network() {
  local i
  install -d "$state"
  # Daemons answer nobody while they wait for a disk, which others may keep busy for minutes.
  mount -t tmpfs -o mode=755 tmpfs "$state"
  install -d "$state/log" "$state/own"
  {
    echo "127.0.0.1 localhost"
    echo "$net.1 $(hostname)"
    for i in "${!nodes[@]}"; do echo "$net.$((11 + i)) ${nodes[i]}"; done
  } >"$state/hosts"
  : >"$state/resolv.conf" # a name server out of reach delays every look-up
  ip link add "$bridge" type bridge
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
}

# A node lives as long as what the command starts in it, and sees a folder of its own as $state/own. nsenter and
# not `ip netns exec`, whose new /sys hides the control groups that slurmd looks for.
start_node() { # index, command...
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
    shift 2
    exec "$@"' sh "$node" "$state" "${@:2}"
}

# All that runs in the networks of the nodes. What is not there has no pids: that is no failure.
node_pids() {
  local node
  for node in "${nodes[@]}"; do ip netns pids "$node-$place" 2>/dev/null || true; done
}

# Ends what the function `pids` of the script prints, and removes all that was made.
remove_nodes() {
  local node pid signal i
  for signal in TERM KILL; do
    for pid in $(pids); do kill "-$signal" "$pid" 2>/dev/null || true; done
    for ((i = 0; i < 30; i++)); do
      [ -n "$(pids)" ] || break
      sleep 0.1
    done
  done
  [ -z "$(pids)" ] || die "processes of the nodes do not end: $(pids | xargs)"
  for node in "${nodes[@]}"; do
    [ ! -e "/run/netns/$node-$place" ] || ip netns del "$node-$place"
    ip link del "v-$node-$place" 2>/dev/null || true # goes with its network, but in its own time
  done
  [ ! -e "/sys/class/net/$bridge" ] || ip link del "$bridge"
  while mountpoint -q "$state"; do umount "$state"; done
  rm -rf "$state"
}
