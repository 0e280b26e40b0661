#!/usr/bin/env bash
# Runs the tests of rows read one-sided in a virtual machine that has an RDMA device (soft-RoCE):
#
#   tests/rdma/run.sh [TEST-BINARY]      default: build/native/gear_rdma_tests, built if need be
#
# vm.sh says what it needs. Minutes on a slow machine: without KVM, every instruction is emulated.
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:-build/native/gear_rdma_tests}
if [ $# = 0 ]; then
  if ! PATH="$PWD/.venv/bin:$PATH" cmake --build build/native --target gear_rdma_tests \
    --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" >build/rdma.log 2>&1; then
    tail -n 40 build/rdma.log
    echo "rdma: cannot build $binary: tools/native.sh makes its folder; see build/rdma.log" >&2
    exit 1
  fi
fi
exec tests/rdma/vm.sh --timeout 300 --boot-timeout 240 -- tests/rdma/in_vm.sh "$binary"
