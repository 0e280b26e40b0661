#!/usr/bin/env bash
# Inside the virtual machine: every test of rows read one-sided, by the RDMA device rxe0.
#
#   tests/rdma/in_vm.sh TEST-BINARY
set -euo pipefail
tests=$1

echo "in_vm: $(uname -r), $(nproc) CPUs, path MTU 4096"
"$tests" --duration=true --test-case-exclude='loopback*,rdma: a link that goes down'
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
