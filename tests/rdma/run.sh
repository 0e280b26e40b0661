#!/usr/bin/env bash
# Runs the tests of rows read one-sided in two virtual machines that have an RDMA device each
# (soft-RoCE), between them and in one of them:
#
#   tests/rdma/run.sh [TEST-BINARY]      default: build/native/gear_rdma_tests, which it builds
#   tests/rdma/run.sh --rates TEST-BINARY      by hand, a binary without sanitizers, libgear_mpi.so
#                                              beside it: how fast rows come by each way
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
if [ "${1:-}" = --rates ]; then
  exec tests/rdma/vm.sh --timeout 900 -- tests/rdma/in_vm.sh rates "$2"
fi
binary=${1:-build/native/gear_rdma_tests}
[ $# -gt 0 ] || tools/native.sh --build=gear_rdma_tests

cable=$(mktemp -d)
second=''
trap '[ -z "$second" ] || kill "$second" 2>/dev/null; rm -rf "$cable"' EXIT
machine() { # number, first or second
  tests/rdma/vm.sh --timeout 900 --boot-timeout 240 --cable "$cable" "$1" -- tests/rdma/in_vm.sh "$2" "$binary"
}
machine 1 second >"$cable/second.log" 2>&1 &
second=$!
status=0
machine 0 first || status=$?
wait "$second" || {
  status=$?
  cat "$cable/second.log"
}
second=''
exit "$status"
