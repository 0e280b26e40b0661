#!/usr/bin/env bash
# Emulated groups under torch, as tests/emu plays them in one process (values, holds, dead ranks, a thousand calls that
# overlap), with gear.emu._emu under ASan and UBSan, and again under TSan. By hand, as it takes minutes; needs g++. What
# of the emulator needs no torch is under both in each nightly run (tests/emu/test_native.py).
#
#   process_group/tests/emu/sanitized.sh [address,undefined | thread]
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=$PWD/.venv/bin/python
export ASAN_OPTIONS=detect_leaks=0:exitcode=99 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 OMP_NUM_THREADS=1
# torch, gloo and Python are not compiled with it: what orders their threads by atomics is not seen.
export TSAN_OPTIONS=halt_on_error=1:exitcode=99:ignore_noninstrumented_modules=1

library_of() { printf '%s' "$(g++ -print-file-name="lib$1.so")"; }

play() { # sanitizers, and their libraries: what is loaded first must be theirs
  local to=$PWD/build/c10d/sanitized/emu-${1//,/-}
  tools/c10d.sh --emulator "--sanitize=$1" "--to=$to" >/dev/null
  local watched=(env "LD_PRELOAD=$2" "GEAR_C10D=$to")
  # TSan of older compilers needs the addresses that it expects.
  if [ "$1" = thread ] && setarch "$(uname -m)" -R true 2>/dev/null; then watched=(setarch "$(uname -m)" -R "${watched[@]}"); fi
  "${watched[@]}" "$python" -c 'import sys, gear.emu.library as library
sys.exit(f"not the library of {sys.argv[1]}" if sys.argv[1] not in str(library.find()) else 0)' "$to"
  "${watched[@]}" "$python" -m pytest -q -p no:cacheprovider tests/emu/test_holds.py tests/emu/test_values.py
  echo "emulated groups under $1: clean"
}

for sanitize in ${1:-address,undefined thread}; do
  case $sanitize in
    address,undefined) play "$sanitize" "$(library_of asan) $(library_of ubsan)" ;;
    thread) play "$sanitize" "$(library_of tsan)" ;;
    *) echo "sanitized: unknown $sanitize: address,undefined and thread are allowed" >&2; exit 2 ;;
  esac
done
