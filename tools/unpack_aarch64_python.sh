#!/usr/bin/env bash
# Puts Debian's Python for AArch64 into build/aarch64/, to be run in an emulator on another machine, for the test of
# wheels for AArch64. Needs no root.
#
#   tools/unpack_aarch64_python.sh
#
# Prints a command that is that Python, at once if it was there before. Exit 1: it cannot be had, or does not run here.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/aarch64
python=$root/python3
runs() { [ "$("$python" -c 'import platform; print(platform.machine())' 2>/dev/null)" = aarch64 ]; }
fail() { echo "unpack_aarch64_python: $*" >&2; exit 1; }

if [ -x "$python" ] && runs; then
  echo "$python"
  exit 0
fi
emulator=$(command -v qemu-aarch64-static) || fail "no qemu-aarch64-static here: on Debian apt-get install qemu-user-static"
command -v apt-get >/dev/null || fail "no apt-get here to get Python by"
rm -rf "$root"
mkdir -p "$root/lists/partial" "$root/packages" "$root/system"
if id -u _apt >/dev/null 2>&1; then chown _apt "$root/packages"; fi # apt downloads as a user of its own
# Lists of its own: the machine's own know one kind of machine alone.
apt() {
  apt-get -qq -o Acquire::Retries=3 -o APT::Architectures::=arm64 -o Dir::State::lists="$root/lists" \
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}
packages=(python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libexpat1 zlib1g libssl3)
packages+=(libffi8 libbz2-1.0 liblzma5 libuuid1)
fetch() { apt update && cd "$root/packages" && apt download "${packages[@]/%/:arm64}"; }
(fetch) || fail "apt-get cannot download ${packages[*]} for arm64"
for package in "$root"/packages/*.deb; do dpkg --extract "$package" "$root/system"; done
rm -rf "$root/lists" "$root/packages"
cat >"$python" <<PYTHON
#!/bin/sh
QEMU_LD_PREFIX="$root/system" exec "$emulator" "$root/system/usr/bin/python3.11" "\$@"
PYTHON
chmod +x "$python"
runs || fail "Debian's Python for AArch64 does not run in $emulator"
echo "$python"
