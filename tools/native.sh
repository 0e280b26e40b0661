#!/usr/bin/env bash
# Builds the native tests twice, with ASan + UBSan (and with CUDA, where there is a GPU to run it) and
# with TSan, and runs both; or with neither, over the core that is compiled for Python (tools/setup.sh).
#
#   tools/native.sh [--sanitizers=all|address|thread|none] [--nightly] [arguments of the test binary]
#   tools/native.sh --build=TARGET      of ASan's folder, build/native; runs nothing
#
# e.g. --test-case='*sum tree*', --build=gear_rdma_tests.
# Under a sanitizer a fifth of the random cases are tried (GEAR_TEST_SCALE), and under TSan the tests alone that
# have to do with threads or processes. Those of the process group, over messages inside of one process, are a
# binary of their own, which takes a second. --nightly tries all cases and all tests under both.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
sanitizers=all
target=gear_native_tests
case ${1:-} in
  --build=*)
    sanitizers=
    target=${1#*=}
    ;;
  --sanitizers=all | --sanitizers=address | --sanitizers=thread | --sanitizers=none)
    sanitizers=${1#*=}
    shift
    ;;
  --sanitizers=*)
    echo "native: unknown $1: all, address, thread or none" >&2
    exit 2
    ;;
esac
nightly=
if [ "${1:-}" = --nightly ]; then
  nightly=1
  shift
fi
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1:die_after_fork=0:suppressions=$PWD/tests/native/tsan.supp" # children may start threads

if [ "$sanitizers" = none ]; then
  core=build/$(.venv/bin/python -c 'import sys, sysconfig
tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
print(tag, tag, sysconfig.get_platform().replace("-", "_").replace(".", "_"), sep="-")')
  if ! { cmake -S . -B "$core" -DGEAR_BUILD_TESTS=ON &&
    cmake --build "$core" --target gear_native_tests gear_process_group_tests gear_group_draws --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"; } \
    >"$core/tests.log" 2>&1; then
    tail -n 60 "$core/tests.log"
    echo "native: the build failed: $core/tests.log" >&2
    exit 1
  fi
  echo "native: without sanitizers"
  "$core/gear_process_group_tests" "$@"
  exec "$core/gear_native_tests" "$@"
fi

[ -n "$nightly" ] || export GEAR_TEST_SCALE=${GEAR_TEST_SCALE:-0.2}
every_test='tests/native/*.cpp'
# What TSan has something to say about: rooms that share work out to threads, and tests elsewhere that start
# threads or processes.
of_threads() {
  find tests/native/{deliver,gather,group,plan,select,transport} -name '*.cpp'
  grep -rlE 'std::j?thread|ThreadPool|fork\(|(child_process|ranks)\.h"' --include='*.cpp' tests/native
}
under_tsan=$every_test
if [ -z "$nightly" ]; then under_tsan=$(of_threads | sort -u | paste -s -d ';' -); fi

# The tests of sources that choose a form by what the processor has (base/numbers/simd.h), for --source-file.
of_many_forms=
mapfile -t choosing < <(grep -rlE '\bpick(<\w+>)?\(' --include='*.cpp' csrc)
for source in "${choosing[@]}"; do
  name=$(basename "$source" .cpp)
  tests=(tests/native/*/test_"${name%_cpu}"*.cpp)
  if [ ! -e "${tests[0]}" ]; then
    echo "native: $source chooses among forms: give it a test, tests/native/.../test_${name%_cpu}.cpp" >&2
    exit 1
  fi
  of_many_forms+=$(printf '*/%s,' "${tests[@]}")
done

generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi

with_cuda=OFF
if [ "${GEAR_WITH_CUDA:-}" != OFF ] && nvidia-smi -L >/dev/null 2>&1 && nvcc=$(tools/find_nvcc.sh); then
  export CUDACXX=$nvcc
  with_cuda=ON
fi
# With a GPU: its addresses lie where ASan keeps others out by default.
export ASAN_OPTIONS=detect_stack_use_after_return=1:protect_shadow_gap=0

# ccache and its like would refuse what was compiled with these.
headers_once=ON
if [ -n "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ]; then headers_once=OFF; fi

# A build gives way to what runs beside it; the tests, which have deadlines, do not.
build() { # folder, sanitizers, CUDA or not, sources of tests, targets...
  mkdir -p "build/$1"
  if ! {
    cmake -S . -B "build/$1" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1" \
      -DGEAR_BUILD_PYTHON=OFF -DGEAR_BUILD_TESTS=ON -DGEAR_SANITIZE="$2" \
      -DGEAR_HEADERS_ONCE="$headers_once" -DGEAR_NATIVE_TESTS="$4" \
      -DGEAR_WITH_CUDA="$3" -DGEAR_CUDA_ARCHITECTURES=75 &&
      nice -n 10 cmake --build "build/$1" --target "${@:5}" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
  } >"build/$1/build.log" 2>&1; then
    tail -n 60 "build/$1/build.log"
    echo "native: the build with -fsanitize=$2 failed: build/$1/build.log" >&2
    return 1
  fi
}

# TSan of older compilers needs the addresses that it expects: no randomisation, where that is allowed.
fixed_addresses=()
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_addresses=(setarch "$(uname -m)" -R); fi

if [ -z "$sanitizers" ]; then
  build native address,undefined "$with_cuda" "$every_test" "$target"
  exit
fi
status=0
building=
benchmark=()
[ $# -gt 0 ] || benchmark=(gear_group_draws)
if [ "$sanitizers" != thread ]; then
  echo "native: address and undefined-behaviour sanitizers"
  build native address,undefined "$with_cuda" "$every_test" "$target" gear_process_group_tests "${benchmark[@]}"
  if [ "$sanitizers" = all ]; then # the tests wait more than they compute
    trap 'kill 0' INT              # what runs beside them would not hear it
    build native-thread thread OFF "$under_tsan" "$target" gear_process_group_tests &
    building=$!
  fi
  build/native/gear_native_tests "$@" || status=$?
  build/native/gear_process_group_tests "$@" || status=$?
  if [ ${#benchmark[@]} -gt 0 ]; then
    # All its cases take seconds, and a fifth of them has missed a fault.
    GEAR_TEST_SCALE=1 build/native/gear_native_tests --source-file='*/test_index_random.cpp' || status=$?
    # 20,000 of them take 80 s.
    GEAR_TEST_SCALE=$([ -n "$nightly" ] && echo 40 || echo 4) build/native/gear_native_tests --source-file='*/test_index_histories.cpp' || status=$?
    for level in none avx2; do # the forms that this processor does not take by itself
      GEAR_SIMD=$level build/native/gear_native_tests --source-file="$of_many_forms" || status=$?
    done
    .venv/bin/python benchmarks/group_draws.py build/native/gear_group_draws --ranks 2,5 --batch-size 4 || status=$?
  fi
fi
if [ "$sanitizers" != address ]; then
  if [ -n "$building" ]; then wait "$building"; else build native-thread thread OFF "$under_tsan" "$target" gear_process_group_tests; fi
  [ "$status" = 0 ] || exit "$status"
  echo "native: thread sanitizer"
  "${fixed_addresses[@]}" build/native-thread/gear_native_tests "$@" || status=$?
  "${fixed_addresses[@]}" build/native-thread/gear_process_group_tests "$@" || status=$?
fi
exit "$status"
