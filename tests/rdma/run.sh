#!/usr/bin/env bash
# Runs the tests of rows read one-sided in a virtual machine that has an RDMA device (soft-RoCE):
#
#   tests/rdma/run.sh [TEST-BINARY]      default: build/native/gear_rdma_tests, which it builds
#   tests/rdma/run.sh --between [TEST-BINARY]      by hand: those between two machines, a rank in each
#
# vm.sh fetches a kernel. Exit 77, and a line for each thing that this machine lacks: they cannot run
# here. Minutes without KVM, where every instruction is emulated.
set -euo pipefail
cd "$(dirname "$0")/../.."
between=
if [ "${1:-}" = --between ]; then
  between=yes
  shift
fi
missing=$(tests/rdma/vm.sh --missing)
if [ -n "$missing" ]; then
  echo "rdma: not run on this machine:"
  awk '{print "  " $0}' <<<"$missing"
  exit 77
fi
binary=${1:-build/native/gear_rdma_tests}
[ $# -gt 0 ] || tools/native.sh --build=gear_rdma_tests
[ -n "$between" ] || exec tests/rdma/vm.sh --timeout 900 --boot-timeout 240 -- tests/rdma/in_vm.sh "$binary"

cable=$(mktemp -d)
owner=''
trap '[ -z "$owner" ] || kill "$owner" 2>/dev/null; rm -rf "$cable"' EXIT
rank() { # number, test case
  tests/rdma/vm.sh --timeout 900 --boot-timeout 240 --cable "$cable" "$1" -- \
    "$binary" --no-skip --duration=true --test-case="rdma machines: $2*"
}
rank 1 "the owner's" &
owner=$!
rank 0 "the reader's"
wait "$owner"
owner=''
