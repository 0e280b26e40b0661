#!/usr/bin/env bash
# Puts Debian's MPICH beside another MPI, for tests: installed, it would take that one's place as mpirun or
# mpicxx, or leave the choice to chance. This one is unpacked into build/mpich/; bin/ there has an mpirun and an
# mpicxx. Needs no root.
#
#   tools/unpack_mpich.sh
#
# Prints the folder bin, at once if it was there before. It needs what Open MPI brings of UCX and hwloc. Exit 1: it
# does not run here.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/mpich
lib=$root/usr/lib/$(uname -m)-linux-gnu

runs() { "$root/bin/mpirun" -n 1 true; }

if grep -qsF "$root/" "$root/bin/mpirun" && [ -x "$root/bin/mpicxx" ] && runs; then # false too where the repository has moved
  echo "$root/bin"
  exit 0
fi
command -v apt-get >/dev/null || { echo "unpack_mpich: no apt-get here to get MPICH by" >&2; exit 1; }
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
chmod a+rwx "$download" # apt downloads as a user of its own
# Its launcher's libslurm is another one than that of Debian's Slurm.
libraries='s/.*Depends: (libmpich[0-9a-z]*|libslurm[0-9a-z]*)$/\1/p'
fetch() {
  mapfile -t packages < <({ echo mpich; apt-cache depends mpich; apt-cache depends libmpich-dev; } | sed -nE "/^mpich$/p; $libraries" | sort -u)
  packages+=(libmpich-dev)
  (cd "$download" && apt-get -qq -o Acquire::Retries=3 download "${packages[@]}")
}
renew() { [ "$(id -u)" = 0 ] && apt-get -qq -o Acquire::Retries=3 update; } # its lists may be old, or none
fetch || { renew && fetch; } || { echo "unpack_mpich: apt-get cannot download ${packages[*]}" >&2; exit 1; }
rm -rf "$root"
mkdir -p "$root/bin"
for package in "${packages[@]}"; do dpkg --extract "$download/$package"_*.deb "$root"; done
# Static libraries are two thirds of it.
find "$lib" -name '*.a' -delete
sed -E -e "s#^(prefix|exec_prefix)=/usr#\1=$root/usr#; s#^(includedir|libdir)=/usr#\1=$root/usr#" \
  -e 's/^with_wrapper_dl_type=none/with_wrapper_dl_type=rpath/' "$root/usr/bin/mpicxx.mpich" >"$root/bin/mpicxx"
cat >"$root/bin/mpirun" <<MPIRUN
#!/bin/sh
LD_LIBRARY_PATH="$lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "$root/usr/bin/mpiexec.hydra" "\$@"
MPIRUN
chmod +x "$root/bin/mpicxx" "$root/bin/mpirun"
runs || { rm -rf "$root"; echo "unpack_mpich: ${packages[*]} do not run here" >&2; exit 1; }
echo "$root/bin"
