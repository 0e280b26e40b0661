#!/usr/bin/env bash
# Everything that needs a GPU: build, kernel tests, the sanitizer, pytest, the benchmark. Offline.
#
#   tests/gpu/run.sh                        all parts in this order
#   tests/gpu/run.sh build native pytest    these
#
#   build      the extension, the emulator, the kernel tests and the raw limits, for the GPU that is here
#   native     the kernel tests, and those of the tiers that need a GPU
#   sanitize   compute-sanitizer: memcheck and racecheck on the kernel tests, memcheck on a round trip
#   pytest     pytest -m gpu --require=gpu; PYTEST_ADDOPTS chooses, e.g. "-k weighted"
#   limits     what the raw hardware gives, by itself (the benchmark runs it too)
#   benchmark  benchmarks/gpu.py; BENCHMARK_ARGS chooses, e.g. "--only small,weighted"
#
# and those of buffers over several GPUs, a process each, which are run only when they are asked for
# (with one GPU, ranks share it; what cannot be so is left out):
#
#   links      what the links between GPUs give, by themselves, and to the gather of listed rows
#   movers     of the kernel tests those of peers' memory, NCCL and batches over ranks
#   group      tests/gpu/test_group.py, a process a rank; memcheck over those movers
#   contract   what tests/distributed has every transport do, by NCCL, with as many ranks as GPUs, two or more
#   scaling    benchmarks/group_gpu.py; SCALING_ARGS chooses, e.g. "--only pooled,overlap"
#
# A failed part does not keep the next from running; the last lines say what passed, exit code 1 if
# anything did not. A run with the part pytest is kept in tests/kept/gpu.json, or gpus.json. Logs and results go to $OUT (build/gpu/out). Each part has a time limit of its
# own, all of them together BUDGET_S (530) seconds.
#
# What it needs: nvcc, g++, cmake, ninja, and a $PYTHON (python3) with pybind11, numpy, torch, pytest,
# hypothesis, pytest-timeout, click, nvidia-ml-py, rich; pytest-xdist is used where it is. DOCTEST_DIR is the folder of doctest.h
# (looked for in .carry and /usr/include). GEAR_CUDA_ARCHITECTURES: default that of the first GPU.
# shellcheck disable=SC2329  # the parts are called by name
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$PWD/build/gpu
OUT=${OUT:-$work/out}
python=${PYTHON:-python3}
PATH="$PATH:/usr/local/cuda/bin:$(dirname "$(command -v "$python")")"
export OUT PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# The package that was built, not the sources in the working directory.
export PYTHONSAFEPATH=1 PYTHONPATH="$work/site"
export GEAR_C10D="$work/c10d"       # the emulator's library
export GEAR_CACHE="$work/cache" # the speeds of the links, as this run measures them
jobs=$(nproc)

say() { printf 'gpu: %s\n' "$*"; }

architectures() {
  if [ -n "${GEAR_CUDA_ARCHITECTURES:-}" ]; then
    echo "$GEAR_CUDA_ARCHITECTURES"
  else
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d '.'
  fi
}

# The folder above doctest/doctest.h.
doctest_include() {
  local folder
  for folder in ${DOCTEST_DIR:+"$DOCTEST_DIR"} .carry .carry/doctest /usr/include /usr/include/doctest; do
    [ -f "$folder/doctest/doctest.h" ] && { realpath "$folder"; return 0; }
    [ -f "$folder/doctest.h" ] || continue
    mkdir -p "$work/include"
    ln -sfn "$(realpath "$folder")" "$work/include/doctest"
    echo "$work/include"
    return 0
  done
  echo "no doctest.h: set DOCTEST_DIR to its folder, or put it into .carry/doctest" >&2
  return 1
}

part_limits_binary() { # limits or limits_peer
  local arch
  arch=$(architectures)
  nvcc -std=c++17 -O3 -lineinfo -gencode "arch=compute_${arch%%;*},code=sm_${arch%%;*}" \
    -o "$work/$1" "benchmarks/$1.cu"
}

# Programs without torch look for NCCL themselves: torch's own is in its package.
find_nccl() {
  GEAR_NCCL=$("$python" -c 'import importlib.util, pathlib
found = importlib.util.find_spec("nvidia.nccl")
roots = list(found.submodule_search_locations) if found else []
print(next((str(p) for r in roots for p in pathlib.Path(r).glob("lib/libnccl.so.2")), ""))')
  export GEAR_NCCL
}

part_build() {
  local include limits emulator status=0
  # For the log only: with GEAR_CUDA_ARCHITECTURES given, a build needs no GPU.
  nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max \
    --format=csv,noheader || echo "nvidia-smi does not answer here"
  nvcc --version | tail -n 2
  g++ --version | head -n 1
  cmake --version | head -n 1
  "$python" --version
  include=$(doctest_include)
  mkdir -p "$work/doctest"
  cat >"$work/doctest/doctestConfig.cmake" <<CMAKE
add_library(doctest::doctest INTERFACE IMPORTED)
set_target_properties(doctest::doctest PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "$include")
CMAKE
  (part_limits_binary limits && part_limits_binary limits_peer) &
  limits=$!
  tools/c10d.sh --emulator --python="$python" --to="$GEAR_C10D" &
  emulator=$!
  cmake -S . -B "$work/cmake" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGEAR_WITH_CUDA=ON -DGEAR_CUDA_ARCHITECTURES="$(architectures)" \
    -DGEAR_BUILD_PYTHON=ON -DGEAR_BUILD_TESTS=ON -Ddoctest_DIR="$work/doctest" \
    -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')" \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" || status=1
  # One file that does not compile does not keep the rest from being built.
  [ "$status" != 0 ] || cmake --build "$work/cmake" --parallel "$jobs" \
    --target _core gear_cuda_tests gear_native_tests -- -k 0 || status=1
  wait "$limits" || status=1
  wait "$emulator" || status=1
  compgen -G "$work/cmake/_core*.so" || return 1
  rm -rf "$work/site"
  mkdir -p "$work/site"
  cp -r gear process_group/python/gear_mpi "$work/site/"
  cp "$work"/cmake/_core*.so "$work/site/gear/"
  (cd "$work" && "$python" -c 'import gear; from gear import _core; print(_core.build_info()); gear.check_visible_device()')
  return "$status"
}

part_native() {
  local status=0
  find_nccl
  "$work/cmake/gear_cuda_tests" --duration=true --no-path-filenames=true || status=1
  # Of the tests for every machine, those that find more to do on one with a GPU.
  "$work/cmake/gear_native_tests" --no-path-filenames=true \
    --test-case='region*,*GPU*,*page-locked*,devices*,*driver*,*owners*' || status=1
  return "$status"
}

# Not looked at is what the tool would wait for without an end, as it runs kernels one by one: NCCL's, which wait for
# each other, and those behind a stream that a test holds; and the launch that a test lets fail, an error to the tool.
not_sanitized=(--test-case-exclude='*NCCL*,*every rank receives*,*two ranks on*,*does not take part*,*on two streams*,*on whatever stream*,*whose launch fails*')

sanitized() { # tool, command...
  local tool=$1
  shift
  compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 --launch-timeout 120 "$@"
}

part_sanitize() {
  local tests=$work/cmake/gear_cuda_tests status=0 name pids=()
  sanitized memcheck "$tests" "${not_sanitized[@]}" >"$work/memcheck.log" 2>&1 & pids+=($!)
  sanitized racecheck --racecheck-report all "$tests" "${not_sanitized[@]}" >"$work/racecheck.log" 2>&1 & pids+=($!)
  (cd "$work" && sanitized memcheck --target-processes all \
    "$python" ../../tests/gpu/round_trip.py) >"$work/round_trip.log" 2>&1 & pids+=($!)
  for name in memcheck racecheck round_trip; do
    echo "== $name"
    if wait "${pids[0]}"; then echo "$name: clean"; else echo "$name: FAILED"; status=1; fi
    tail -c 400000 "$work/$name.log"
    pids=("${pids[@]:1}")
  done
  return "$status"
}

num_gpus() { nvidia-smi --list-gpus | wc -l; }

# Of pytest, what this machine has the GPUs for.
markers() {
  if [ "$(num_gpus)" -gt 1 ]; then echo gpu; else echo "gpu and not gpus"; fi
}

part_pytest() {
  local workers=()
  if "$python" -c 'import xdist' 2>/dev/null; then
    workers=(-n "$((jobs < 8 ? jobs : 8))" --dist worksteal)
  fi
  # The packages of this machine are not the pinned ones: their warnings are not failures here.
  "$python" -m pytest -m "$(markers)" --require=gpu -q --tb=short --timeout=100 -p no:cacheprovider \
    -W default --durations=12 "${workers[@]}" tests/cli tests/contract tests/golden tests/gpu tests/unit
}

built() { # limits or limits_peer
  [ "$work/$1" -nt "benchmarks/$1.cu" ] && [ "$work/$1" -nt benchmarks/limits_gather.cuh ] ||
    part_limits_binary "$1"
}

part_limits() {
  built limits
  "$work/limits"
}

part_benchmark() {
  local arguments=()
  read -ra arguments <<<"${BENCHMARK_ARGS:-}"
  built limits
  rm -rf "$GEAR_CACHE"
  # A script's own folder is on the path again; the working directory is not.
  env -u PYTHONSAFEPATH "$python" benchmarks/gpu.py --limits "$work/limits" --json "$OUT/benchmark.json" "${arguments[@]}"
}

part_links() {
  built limits_peer
  nvidia-smi topo -m || echo "nvidia-smi does not say how the GPUs are linked"
  "$work/limits_peer"
  if [ -x "$work/cmake/gear_cuda_tests" ]; then
    "$work/cmake/gear_cuda_tests" --no-skip=true --test-case='measure*'
  fi
}

movers=(--test-case='*rows of several owners*,*rows packed by*,*another process*,*another GPU*,*NCCL*,*every rank receives*,*two ranks*,*does not take part*,ranks *')

part_movers() {
  find_nccl
  "$work/cmake/gear_cuda_tests" --duration=true --no-path-filenames=true "${movers[@]}"
}

part_group() {
  local status=0 memcheck
  find_nccl
  sanitized memcheck "$work/cmake/gear_cuda_tests" --no-path-filenames=true \
    --test-case='*rows of several owners*,*rows packed by*,*another GPU*,ranks read*,*through the host*' \
    >"$work/memcheck_movers.log" 2>&1 & memcheck=$!
  "$python" -m pytest -m "$(markers)" --require=gpu -q --tb=short --timeout=150 -p no:cacheprovider \
    -W default --durations=12 tests/gpu/test_group.py || status=1
  echo "== memcheck of the movers"
  if wait "$memcheck"; then echo "movers: clean"; else echo "movers: FAILED"; status=1; fi
  tail -c 200000 "$work/memcheck_movers.log"
  return "$status"
}

part_contract() {
  local ranks
  ranks=$(num_gpus)
  if [ "$ranks" -lt 2 ]; then
    echo "FAILED: ranks by NCCL need a GPU each, two or more, and this machine has $ranks"
    return 1
  fi
  find_nccl
  "$python" -m pytest -m gpu --require=gpu -q --tb=short --timeout=200 -p no:cacheprovider -p no:xdist \
    -W default --durations=5 tests/distributed -k "nccl-$ranks"
}

part_scaling() {
  local arguments=()
  read -ra arguments <<<"${SCALING_ARGS:-}"
  built limits_peer
  env -u PYTHONSAFEPATH "$python" benchmarks/group_gpu.py --limits "$work/limits_peer" \
    --json "$OUT/scaling.json" "${arguments[@]}"
}

# What of a failed part's log says why.
explain() { # part
  case $1 in
    build) grep -nE '(error|undefined reference|FAILED|CMake Error|Traceback)' "$OUT/$1.log" | cut -c1-300 | head -n 25 ;;
    sanitize) grep -nE '(=========|FAILED|clean)' "$OUT/$1.log" | cut -c1-200 | head -n 40 ;;
    pytest) grep -E '^(FAILED|ERROR)' "$OUT/$1.log" | cut -c1-260 | head -n 60 ;;
    group | contract) grep -E '^(FAILED|ERROR|E  |=========|.*: (FAILED|clean))' "$OUT/$1.log" | cut -c1-260 | head -n 80 ;;
    movers) grep -nE '(ERROR|values:|logged|TEST CASE|FAILED)' "$OUT/$1.log" | cut -c1-300 | head -n 60 ;;
    *) tail -n 25 "$OUT/$1.log" | cut -c1-300 ;;
  esac
}

# What of a part's log belongs into the summary, passed or not.
digest() { # part
  case $1 in
    native | movers) grep -E '^\[doctest\] (test cases|assertions)' "$OUT/$1.log" ;;
    sanitize) grep -E '(ERROR SUMMARY|RACECHECK SUMMARY|: clean)' "$OUT/$1.log" ;;
    pytest | contract) tail -n 1 "$OUT/$1.log" ;;
    links) grep -E '"(peer_copy|all_peers_gather)"' "$OUT/$1.log" ;;
    group) grep -E '(passed|failed|ERROR SUMMARY|: clean)' "$OUT/$1.log" ;;
    benchmark | scaling) sed -n '/^targets/,$p' "$OUT/$1.log" ;;
    *) ;;
  esac
}

limit_of() {
  case $1 in
    build) echo 220 ;;
    native | movers) echo 60 ;;
    sanitize) echo 200 ;;
    limits | links) echo 90 ;;
    group | contract) echo 180 ;;
    pytest | benchmark | scaling) echo 238 ;;
    *) return 1 ;;
  esac
}

mkdir -p "$work" "$OUT"
if [ "${1:-}" = --one ]; then # a part by itself, under the time limit of the call below
  "part_$2"
  exit
fi

parts=("$@")
[ $# -gt 0 ] || parts=(build native sanitize pytest benchmark)
for part in "${parts[@]}"; do
  limit_of "$part" >/dev/null || { say "no part '$part': see the head of $0" >&2; exit 2; }
done

summary=()
failed=0
for part in "${parts[@]}"; do
  left=$((${BUDGET_S:-530} - SECONDS))
  limit=$(limit_of "$part")
  limit=$((limit < left ? limit : left))
  if [ "$limit" -lt 10 ]; then
    summary+=("$part: NOT RUN, ${BUDGET_S:-530} s are spent")
    failed=1
    continue
  fi
  began=$SECONDS
  code=0
  timeout --kill-after=10 "$limit" "$BASH" "$0" --one "$part" >"$OUT/$part.log" 2>&1 || code=$?
  took=$((SECONDS - began))
  case $code in
    0) verdict=ok ;;
    124 | 137) verdict="FAILED: stopped after its $limit s" ;;
    *) verdict="FAILED with exit code $code" ;;
  esac
  say "$part: $verdict, $took s"
  if [ "$code" != 0 ]; then
    failed=1
    explain "$part" || echo "nothing in $OUT/$part.log says why by a known word"
  fi
  summary+=("$part: $verdict, $took s")
  while IFS= read -r line; do summary+=("    $line"); done < <(digest "$part" || true)
done

# For the last lines of `make test`, which no GPU sees: what ran, where, on what. A copy of the sources without
# git is told its commit by GEAR_COMMIT.
if [[ " ${parts[*]} " == *" pytest "* ]]; then
  device=$(nvidia-smi --query-gpu=name --format=csv,noheader | sort | uniq -c | xargs)
  result=$(printf '%s\n' "${summary[@]}" | sed -n 's/^\([a-z]*: [a-zA-Z]*\).*/\1/p' | paste -sd ',' | sed 's/,/, /g')
  tests=$(tail -n 1 "$OUT/pytest.log" | tr -d = | sed 's/^ *//; s/ *$//')
  cp "$("$python" tests/kept_runs.py keep-gpu "$result; pytest: $tests" "$device")" "$OUT/"
fi
printf '%s\n' "${summary[@]}" >"$OUT/summary.txt"
say "summary"
cut -c1-200 "$OUT/summary.txt"
exit "$failed"
