#!/usr/bin/env bash
# Runs the tests of rows read one-sided in a virtual machine that has an RDMA device (soft-RoCE):
#
#   tests/rdma/run.sh [TEST-BINARY]      default: build/native/gear_rdma_tests, which it builds
#
# vm.sh fetches a kernel. Exit 77, and a line for each thing that this machine lacks: they cannot run
# here. Minutes without KVM, where every instruction is emulated.
set -euo pipefail
cd "$(dirname "$0")/../.."
missing=$(tests/rdma/vm.sh --missing)
if [ -n "$missing" ]; then
  echo "rdma: not run on this machine:"
  awk '{print "  " $0}' <<<"$missing"
  exit 77
fi
binary=${1:-build/native/gear_rdma_tests}
[ $# -gt 0 ] || tools/native.sh --build=gear_rdma_tests
exec tests/rdma/vm.sh --timeout 300 --boot-timeout 240 -- tests/rdma/in_vm.sh "$binary"
