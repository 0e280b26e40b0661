#!/usr/bin/env bash
# Inside the virtual machines: the tests of rows read one-sided, by the RDMA device rxe0.
#
#   tests/rdma/in_vm.sh first|second TEST-BINARY     those between two machines, each of which runs this; then the first
#                                                    runs those of one machine
#   tests/rdma/in_vm.sh rates TEST-BINARY            two ranks of one machine, started by mpirun: how fast rows come
set -euo pipefail
role=$1
tests=$2

# Not what is of how fast a rank is: the first two are run below, and so is the third, whose writer leaves a slow reader
# nothing. The last one draws 20,000 times in vain.
late='transport: a rank that does not come in time*,transport: several late*'
between() {
  GEAR_TEST_MACHINE=$1 "$tests" --duration=true \
    --test-case='transport:*,first exchange*,one-sided *,packed rows*,pulled rows*' \
    --test-case-exclude="$late,pulled rows: what is given up*,pulled rows: none are there*"
  "$tests" --no-skip --duration=true --test-case="rdma machines: $2*"
}

case $role in
  rates)
    echo vm >/proc/sys/kernel/hostname
    exec mpirun --allow-run-as-root --oversubscribe -n 2 --mca btl self,tcp \
      "$tests" --no-skip --test-case='rdma rates*'
    ;;
  second)
    between 1 "the owner's"
    exit
    ;;
esac

echo "in_vm: $(uname -r), $(nproc) CPUs, path MTU 4096, two machines"
between 0 "the reader's"

echo "in_vm: one machine"
rdma link delete rxe0
ip link set eth0 down
ip link set eth0 name cable
ip link add eth0 mtu 4200 type dummy
ip addr flush dev cable
ip addr add 10.77.0.1/24 dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do sleep 0.1; done
"$tests" --duration=true --test-case="rdma*,$late" \
  --test-case-exclude='rdma: a link that goes down'
echo "in_vm: a link that goes down"
"$tests" --test-case='rdma: a link that goes down'

echo "in_vm: MTU 1500, so a row of 4096 bytes is 4 packets"
ip link set eth0 mtu 1500
"$tests" --test-case='rdma: 20?000*,one-sided rows: no page*,pulled rows: what is given up*'

echo "in_vm: 1 MiB may be locked"
setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock prlimit --memlock=1048576:1048576 \
  "$tests" --no-skip --test-case='rdma limits: *memory*'

echo "in_vm: no device"
rdma link delete rxe0
"$tests" --no-skip --test-case='rdma limits: there is no device'
echo "in_vm: all passed"
