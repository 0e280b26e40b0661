#!/usr/bin/env bash
# What GEAR needs of the operating system: installs it from Debian or Ubuntu where that is allowed
# (root), and says what is missing still and what is not tested without it.
#
#   tools/debian_packages.sh train      for building
#   tools/debian_packages.sh dev        that, and for every test
#   tools/debian_packages.sh missing    installs no packages: one line per missing thing
#
# Exit 1 if GEAR cannot be built here. What the commands said is in build/apt.log.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin # a user's PATH on Debian has no slurmctld
log=build/apt.log

have() { [ "$(command -v "$@" | wc -l)" = $# ]; }
have_doctest() { have g++ && echo '#include <doctest/doctest.h>' | g++ -x c++ -E - >/dev/null; }
have_fabric() { have g++ && echo '#include <rdma/fi_rma.h>' | g++ -x c++ -E - >/dev/null; }
# Debian's kernel is fetched when a machine is first made; elsewhere these tests are skipped.
have_virtual_machines() { [ "$(uname -m)" != x86_64 ] || ! tests/rdma/vm.sh --missing | grep -v '^a kernel: '; }
have_slurm() { have sbatch slurmctld slurmd munged ip && ldconfig -p | grep libpmix.so.2; }

# Both module tools: Debian installs one, which this leaves as it is; the other is put beside it.
have_modules() {
  [ -f /usr/share/modules/init/bash ] || { system_has_lmod && tools/unpack_module_tool.sh modules; }
}
have_lmod() { system_has_lmod || tools/unpack_module_tool.sh lmod; }
system_has_lmod() { [ -f /usr/share/lmod/lmod/init/bash ]; }

have_simgrid() { /usr/bin/python3 -c 'import simgrid'; }

have_wheel_headers() { [ -f /usr/include/infiniband/verbs.h ] && [ -f /usr/include/rdma/fabric.h ]; }

# A line `what is lost: needs packages`, unless the command after these two succeeds.
unless() {
  local lost=$1 packages=$2
  shift 2
  "$@" >>"$log" 2>&1 || echo "$lost: needs $packages"
}

missing_to_build() {
  unless "building GEAR" "g++" have g++
  unless "building GEAR" "python3 python3-venv python3-dev" tools/find_python.sh
}

missing_to_test() {
  local modules=environment-modules
  if system_has_lmod; then modules="tcl less procps"; fi
  unless "native C++ tests" "doctest-dev" have_doctest
  unless "tests of the transport mpi and of Horovod" "openmpi-bin libopenmpi-dev" have mpirun mpicxx
  unless "tests of the transport fabric" "libfabric-dev" have_fabric
  unless "tests of a release's wheels" "libibverbs-dev libfabric-dev" have_wheel_headers
  if [ "$(uname -m)" = x86_64 ]; then
    unless "test of wheels for AArch64" "g++-aarch64-linux-gnu qemu-user-static" \
      have aarch64-linux-gnu-g++ qemu-aarch64-static
  fi
  unless "tests under Environment Modules" "$modules" have_modules
  unless "tests under Lmod" "lua5.3 lua-posix lua-term lua-json lua-filesystem tcl" have_lmod
  unless "tests of the site distribution" "make patch" have make patch
  unless "test that man finds the module's pages" "man-db" have man
  unless "tests of modules and venvs in zsh" "zsh" have zsh
  unless "tests of modules and venvs in tcsh" "tcsh" have tcsh
  unless "tests of modules and venvs in fish" "fish" have fish
  unless "tests of RDMA in virtual machines" \
    "qemu-system-x86 busybox-static iproute2 kmod libibverbs-dev ibverbs-providers" have_virtual_machines
  unless "tests of the Slurm templates" "slurm-wlm munge libpmix2 iproute2" have_slurm
  unless "the nightly test of the container image" "podman debootstrap" have podman debootstrap
  unless "test of the example with SimGrid" "python3-simgrid" have_simgrid
  unless "tests of nodes that know each other by ssh" "openssh-server openssh-client pdsh iproute2" have sshd ssh pdsh ip
}

missing() {
  missing_to_build
  if [ "$level" != train ]; then missing_to_test; fi
}

packages() { awk -F ': needs ' '{print $2}' <<<"$lacks" | xargs; }

install() {
  echo "setup: installing from the distribution: $(packages)"
  # shellcheck disable=SC2046  # a list of package names
  (apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
    --no-install-recommends $(packages)) >>"$log" 2>&1 ||
    echo "setup: apt-get failed, see $log; going on with what is here"
}

level=${1:-dev}
case $level in
  train | dev | missing) ;;
  *) echo "debian_packages: unknown level '$level': train, dev or missing" >&2; exit 2 ;;
esac
mkdir -p build
: >"$log"
lacks=$(missing)
if [ "$level" = missing ]; then
  [ -z "$lacks" ] || echo "$lacks"
  exit 0
fi
if [ -n "$lacks" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  install
  lacks=$(missing)
fi
if [ -n "$lacks" ]; then
  echo "setup: this machine goes without"
  awk '{print "  " $0}' <<<"$lacks"
  echo "  On Debian or Ubuntu: sudo apt-get install --no-install-recommends $(packages)"
fi
! grep -q '^building' <<<"$lacks"
