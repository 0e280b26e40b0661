#!/usr/bin/env bash
# Runs a command in a throw-away virtual machine that has an RDMA device: rxe0, RoCE v2 in software.
#
#   tests/rdma/vm.sh [--timeout S] [--boot-timeout S] [--cable FOLDER 0|1] -- COMMAND [ARGUMENT...]
#   tests/rdma/vm.sh --prepare       fetches the kernel and builds the initramfs, nothing more
#   tests/rdma/vm.sh --missing       one line per thing that this machine lacks: `what: needs package`
#
# With --cable, eth0 leads to the machine that is started with the same FOLDER and the other number;
# their addresses are 10.77.0.1 and 10.77.0.2. That needs qemu 7.2.
#
# The guest boots the distribution's kernel. Its root is this machine's, read-only, with a tmpfs over it;
# the current folder is there too, writable, and the command runs in it, as root, with stdin from
# /dev/null. Output comes back as it is written. The exit status is the command's, or
#
#   120 wrong use, or something is missing   121 no kernel   122 the guest ended before the command
#   123 it did not start in time (240 s)     124 the command took too long (300 s)
#
# Needs x86-64 and, on Debian: qemu-system-x86 busybox-static iproute2 kmod libibverbs-dev
# ibverbs-providers, and apt-get to fetch a kernel (70 MB, once). No right on the machine, no KVM: every instruction is emulated, and a start takes 4 s at best.
# What is fetched and built stays in $XDG_CACHE_HOME/gear/rdma-vm.
set -euo pipefail
export LC_ALL=C

die() {
  echo "vm: $2" >&2
  exit "$1"
}

timeout=300 boot_timeout=240 only='' cable='' number=0
while [ $# -gt 0 ]; do
  case $1 in
    --timeout) timeout=$2; shift 2 ;;
    --boot-timeout) boot_timeout=$2; shift 2 ;;
    --cable) cable=$2 number=$3; shift 3 ;;
    --prepare | --missing) only=${1#--}; shift ;;
    --) shift; break ;;
    *) die 120 "unknown option $1" ;;
  esac
done
[ -n "$only" ] || [ $# -gt 0 ] || die 120 "no command: vm.sh [--timeout S] -- COMMAND..."
PATH=$PATH:/usr/sbin:/sbin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/gear/rdma-vm
prepared() { [ "$(cat "$cache/ready" 2>/dev/null)" = "$(sha256sum <"$0")" ]; }

missing() {
  local tool package
  [ "$(uname -m)" = x86_64 ] || echo "an x86-64 machine: this one is $(uname -m)"
  while read -r tool package; do
    command -v "$tool" >/dev/null || echo "$tool: needs $package"
  done <<'TOOLS'
qemu-system-x86_64 qemu-system-x86
busybox busybox-static
ip iproute2
rdma iproute2
modprobe kmod
depmod kmod
python3 python3
TOOLS
  case $(ldd "$(command -v busybox)" 2>&1) in
    *"=>"*) echo "a static busybox: needs busybox-static" ;;
  esac
  compgen -G '/usr/lib/*/libibverbs/librxe-*' >/dev/null || echo "librxe: needs ibverbs-providers"
  compgen -G '/usr/include/infiniband/verbs.h' >/dev/null || echo "infiniband/verbs.h: needs libibverbs-dev"
  prepared || apt-cache show linux-image-amd64 >/dev/null 2>&1 ||
    echo "a kernel: needs an apt-get that knows linux-image-amd64 (Debian, after apt-get update)"
}

lacks=$(missing)
if [ "$only" = missing ]; then
  [ -z "$lacks" ] || echo "$lacks"
  exit 0
fi
[ -z "$lacks" ] || die 120 "$lacks"
mkdir -p "$cache"
modules="virtio_pci 9pnet_virtio 9p overlay virtio_rng virtio_net dummy crc32_generic ib_uverbs rdma_ucm rdma_rxe"

# ---- the kernel, and an initramfs with the modules that the guest needs; kept

write_init() {
  cat <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
quit() { $b sync; $b reboot -f; }
for m in $($b cat /m/order); do
  options=; [ "$m" = dummy.ko ] && options=numdummies=0
  $b insmod /m/$m $options || echo "vm: insmod $m failed"
done
p=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o $p,rw,cache=none run /run || { echo "vm: no folder to talk by"; quit; }
. /run/config
fail() { echo "$*" >/run/failed; quit; }
$b mount -t 9p -o $p,ro,cache=loose root /ro || fail "the root cannot be mounted"
$b mount -t tmpfs -o size=75% tmpfs /rw && $b mkdir /rw/u /rw/w
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w overlay /new || fail "no overlay"
n=/new
for d in proc sys dev tmp run; do $b mkdir -p $n/$d; done
$b mount -t proc proc $n/proc; $b mount -t sysfs sys $n/sys; $b mount -t devtmpfs dev $n/dev
$b mkdir -p $n/dev/pts $n/dev/shm; $b mount -t devpts devpts $n/dev/pts
for d in dev/shm tmp run; do $b mount -t tmpfs -o mode=1777 tmpfs $n/$d; done
$b mkdir -p $n/run/vm && $b mount --bind /run $n/run/vm
$b mkdir -p "$n$FOLDER"; $b mount -t 9p -o $p,rw,cache=loose folder "$n$FOLDER" || fail "no $FOLDER"
[ -e $n/dev/fd ] || $b ln -s /proc/self/fd $n/dev/fd
c() { $b chroot $n /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
c ip link set lo up
[ -e /sys/class/net/eth0 ] || c ip link add eth0 type dummy
c ip link set eth0 mtu 4200  # so that the path's is 4096
c ip addr add $ADDRESS/24 dev eth0; c ip link set eth0 up
c rdma link add rxe0 type rxe netdev eth0 || fail "no RDMA device"
i=0
until $b grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state || [ $i -ge 100 ]; do
  $b usleep 100000; i=$((i+1))
done
echo >/run/up
c /bin/bash /run/vm/command >/run/out 2>/run/err </dev/null
echo $? >/run/status.tmp; $b sync; $b mv /run/status.tmp /run/status
quit
INIT
}

unpack_kernel() { # vmlinuz, vmlinux: emulation boots it without decompressing it itself
  python3 - "$1" "$2" <<'PY' || rm -f "$2"
import lzma, sys, zlib

packed = open(sys.argv[1], "rb").read()
for magic, make in (
    (b"\xfd7zXZ\0", lzma.LZMADecompressor),
    (b"\x1f\x8b\x08", lambda: zlib.decompressobj(31)),
):
    at = packed.find(magic)
    while at >= 0:
        try:
            out = make().decompress(packed[at:])
        except (lzma.LZMAError, zlib.error, EOFError):  # the magic stood there by chance
            out = b""
        if out[:4] == b"\x7fELF":
            open(sys.argv[2], "wb").write(out)
            sys.exit(0)
        at = packed.find(magic, at + 1)
sys.exit(1)
PY
}

add_module() { # name, folder of the initramfs; with what it needs, in order
  local file name
  modprobe -d "$cache/tree" -S "$release" --show-depends "$1" 2>/dev/null |
    sed -n 's/^insmod \([^ ]*\).*/\1/p' | while read -r file; do
    name=$(basename "$file" .xz)
    if grep -qxF "$name" "$2/m/order"; then continue; fi
    case $file in
      *.xz) python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' "$file" >"$2/m/$name" ;;
      *) cp "$file" "$2/m/$name" ;;
    esac
    echo "$name" >>"$2/m/order"
  done
}

build() {
  local package folder=$cache/initramfs name
  rm -rf "$cache/tree" "$folder" "$cache/fetched"
  mkdir -p "$cache/tree" "$cache/fetched" "$folder"/{bin,m,proc,sys,dev,ro,rw,new,run}
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
  [ -n "$package" ] || die 121 "apt knows no linux-image-amd64: run apt-get update"
  (cd "$cache/fetched" && apt-get -q download "$package") >"$cache/log" 2>&1 || die 121 "$package cannot be fetched: see $cache/log"
  dpkg-deb -x "$cache"/fetched/*.deb "$cache/tree"
  rm -r "$cache/fetched"
  [ -d "$cache/tree/lib" ] || ln -s usr/lib "$cache/tree/lib"
  release=$(ls "$cache/tree/lib/modules")
  depmod -b "$cache/tree" "$release" 2>>"$cache/log"
  cp "$cache/tree/boot/vmlinuz-$release" "$cache/kernel"
  unpack_kernel "$cache/kernel" "$cache/unpacked"
  [ ! -s "$cache/unpacked" ] || mv "$cache/unpacked" "$cache/kernel"
  cp "$(command -v busybox)" "$folder/bin/busybox"
  : >"$folder/m/order"
  for name in $modules; do add_module "$name" "$folder"; done
  write_init >"$folder/init"
  chmod 755 "$folder/init"
  (cd "$folder" && find . | busybox cpio -o -H newc 2>/dev/null) >"$cache/initrd"
  rm -rf "$cache/tree" "$folder"
}

exec 9>"$cache/lock"
flock 9
if ! prepared; then
  rm -f "$cache/ready"
  build
  sha256sum <"$0" >"$cache/ready"
fi
flock -u 9
[ "$only" != prepare ] || exit 0

# ---- the machine

run=$(mktemp -d "${TMPDIR:-/tmp}/rdma-vm.XXXXXX")
guest='' shown=()
# shellcheck disable=SC2329 # the trap calls it
end() {
  [ -z "$guest" ] || kill -KILL "$guest" 2>/dev/null || true
  for one in "${shown[@]}"; do kill "$one" 2>/dev/null || true; done
  rm -rf "$run"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

printf 'FOLDER=%q ADDRESS=10.77.0.%d\n' "$PWD" $((number + 1)) >"$run/config"
{
  echo "export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb"
  printf 'ulimit -l unlimited; cd %q || exit 120\nexec' "$PWD"
  printf ' %q' "$@"
} >"$run/command"
: >"$run/out"
: >"$run/err"
options=(-nodefaults -no-user-config -display none -no-reboot -M pc -accel "tcg,thread=multi" -cpu max
  -smp 2 -m 2048 -device virtio-rng-pci -serial "file:$run/console" -kernel "$cache/kernel" -initrd "$cache/initrd")
share() { # tag, folder, readonly or nothing
  options+=(-fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap${3:+,readonly=on}"
    -device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}
share root / readonly
share run "$run"
share folder "$PWD"
if [ -n "$cable" ]; then
  server=on
  if [ "$number" = 1 ]; then
    server=off
    until [ -S "$cable/socket" ] || [ "$SECONDS" -ge "$boot_timeout" ]; do sleep 0.1; done
  fi
  options+=(-netdev "stream,id=cable,server=$server,addr.type=unix,addr.path=$cable/socket"
    -device "virtio-net-pci,netdev=cable,mac=52:54:00:00:00:0$number,host_mtu=4200,romfile=")
fi
line="console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off nokaslr net.ifnames=0 no_timer_check random.trust_cpu=on cryptomgr.notests"
# The guest's clock counts the host's cycles. On a busy host it would measure their rate wrongly.
khz=$(awk -F: '/^bogomips/ {printf "%d", $2 * 500; exit}' /proc/cpuinfo)
if grep -qm1 constant_tsc /proc/cpuinfo && [ "${khz:-0}" -gt 500000 ]; then line+=" tsc_early_khz=$khz"; fi

# No machine outlives this script, even one that is killed.
setpriv --pdeathsig KILL qemu-system-x86_64 "${options[@]}" -append "$line" </dev/null >"$run/qemu" 2>&1 &
guest=$!
tail -s 0.1 -c +1 -f --pid="$guest" "$run/out" &
shown+=($!)
tail -s 0.1 -c +1 -f --pid="$guest" "$run/err" >&2 &
shown+=($!)

tell_console() { tail -n 20 "$run/qemu" "$run/console" "$run/failed" >&2 2>/dev/null || true; }
deadline=$((SECONDS + boot_timeout)) up=
while kill -0 "$guest" 2>/dev/null && [ ! -e "$run/status" ]; do
  if [ -z "$up" ] && [ -e "$run/up" ]; then
    up=yes
    deadline=$((SECONDS + timeout))
  fi
  if [ "$SECONDS" -ge "$deadline" ]; then
    tell_console
    [ -n "$up" ] || die 123 "the guest did not start within $boot_timeout s"
    die 124 "the command took longer than $timeout s"
  fi
  sleep 0.1
done
kill -KILL "$guest" 2>/dev/null || true
{ wait "$guest"; } 2>/dev/null || true
guest=
wait "${shown[@]}" 2>/dev/null || true
if [ ! -s "$run/status" ]; then
  tell_console
  die 122 "the guest ended before the command did"
fi
exit "$(cat "$run/status")"
