#!/usr/bin/env bash
# Two virtual nodes, node1 and node2, that know each other by ssh alone, as machines without a scheduler do.
#
#   tests/nodes/ssh.sh up                      starts them, unless they run
#   tests/nodes/ssh.sh on node1 COMMAND...     a command in a node, in this environment and folder
#   tests/nodes/ssh.sh down                    ends them with all that runs in them
#
# In a node `ssh node2` asks for no password: root has a key, made here, that the real sshd of each
# accepts; a command over ssh gets the environment of a fresh login, as it would elsewhere. PLACE (0 to 9)
# tells such pairs apart. Needs root and, on Debian, openssh-server openssh-client iproute2 procps. All
# it makes is in /run/gear-ssh-PLACE, but for its networks and the folder /run/sshd.
set -euo pipefail

place=${PLACE:-0}
nodes=(node1 node2)
net=10.78.$place
state=/run/gear-ssh-$place
PATH=$PATH:/usr/sbin:/sbin
# shellcheck source=/dev/null
source "$(dirname "$0")/virtual.sh"

pids() { node_pids; }

make_keys() {
  local node
  ssh-keygen -q -t ed25519 -N '' -f "$state/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$state/key"
  for node in "${!nodes[@]}"; do
    echo "${nodes[node]},$net.$((11 + node)) $(cut -d' ' -f1,2 "$state/host_key.pub")"
  done >"$state/known_hosts"
  cat >"$state/sshd_config" <<CONF
HostKey $state/host_key
AuthorizedKeysFile $state/key.pub
PermitRootLogin prohibit-password
PidFile none
StrictModes no
UseDNS no
UsePAM no
CONF
  cat >"$state/ssh_config" <<CONF
Host ${nodes[*]} $net.*
  User root
  IdentityFile $state/key
  UserKnownHostsFile $state/known_hosts
  BatchMode yes
CONF
}

runs() { # node
  local pid
  pid=$(cat "$state/$1/pid" 2>/dev/null) && [ -e "/proc/$pid" ]
}

answers() { # node
  (on "$1" ssh -o ConnectTimeout=2 "$1" true) 2>>"$state/log/start.log"
}

on() { # node, command..., which this process becomes
  runs "$1" || die "$1 is not up: tests/nodes/ssh.sh up"
  exec nsenter --target="$(cat "$state/$1/pid")" --net --uts --ipc --mount --wd="$PWD" "${@:2}"
}

up() {
  local i node
  if runs node1 && runs node2; then return 0; fi
  remove_nodes
  make_network
  trap 'tail -n 20 "$state"/log/*.log >&2; remove_nodes; say "did not start; the logs are above"' EXIT
  install -d -m 755 /run/sshd # sshd wants it
  make_keys
  for node in "${!nodes[@]}"; do
    # The program ssh of the node finds its key where every user's does.
    # shellcheck disable=SC2016  # expanded by the inner shell
    start_node "$node" sh -euc '
      mount --bind "$1/ssh_config" /etc/ssh/ssh_config
      echo $$ >"$1/$(hostname)/pid"
      exec /usr/sbin/sshd -D -f "$1/sshd_config" -E "$1/log/$(hostname).log"' sh "$state" \
      </dev/null >/dev/null 2>&1 9>&- &
  done
  for node in "${nodes[@]}"; do
    for ((i = 0; i < 100; i++)); do
      if answers "$node"; then break; fi
      sleep 0.1
    done
    answers "$node"
  done
  trap - EXIT
}

case ${1:-} in
  up)
    check_machine "openssh-server openssh-client" sshd ssh ssh-keygen
    lock
    up
    ;;
  down)
    check_machine "openssh-server openssh-client"
    lock
    remove_nodes
    ;;
  on)
    [ $# -ge 3 ] || die "usage: tests/nodes/ssh.sh on NODE COMMAND..."
    on "${@:2}"
    ;;
  *)
    echo "usage: tests/nodes/ssh.sh up | on NODE COMMAND... | down" >&2
    exit 2
    ;;
esac
