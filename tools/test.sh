#!/usr/bin/env bash
# `make test`: venv, build, native tests, Python tests. Ends with what this machine could not run, and pytest's
# closing line.
#
#   tools/test.sh [--all | --nightly] [pytest arguments]
#
# Without either: no lint (`make lint`), no test that is marked slow, the native tests over the core as it is,
# without sanitizers, and GPU code is compiled where there is a GPU alone.
# --all, `make test-all`: lint, slow tests, the native ones under ASan and UBSan, whether GPU code compiles, and the
# site build of README, which the tests of the distribution wait for. Subjects whose files have not changed since they
# last ran are left out (tests/kept_runs.py), and so is what is marked nightly. The core is one: without it there are no
# native tests; what clang-tidy looks at, and GPU code, are two more.
# --nightly, `make test-nightly`: everything, but subjects that have passed on these very files, whole: who wants
# one once more deletes tests/kept/SUBJECT.json. If nothing fails, tests/kept says so.
# Tests run side by side, three processes for two cores; `-n 0` runs them in this one.
set -euo pipefail
cd "$(dirname "$0")/.."

form=fast
case ${1:-} in
  --all | --nightly)
    form=${1#--}
    shift
    ;;
esac
of_form=() # for a commit, and for the nightly run
if [ "$form" = nightly ]; then of_form=(nightly); fi
unchanged() { python3 tests/kept_runs.py unchanged "$1" "${of_form[@]}"; }
core=due # nothing: what make test-all and make test-nightly have for the core is not run
if core_unchanged=$(unchanged core) || [ "$form" = fast ]; then core=''; fi
tidy=due
if tidy_unchanged=$(unchanged tidy); then tidy=''; fi
cuda=due
if cuda_unchanged=$(unchanged cuda); then cuda=''; fi
if [ "$form$cuda" = nightlydue ]; then export GEAR_WITH_CUDA=${GEAR_WITH_CUDA:-ON}; fi
case $form in
  fast) chosen=(-m "not slow and not nightly") ;;
  all) chosen=(-m "not nightly and not frameworks" --changed-subjects) ;;
  nightly) chosen=(-m "not frameworks" --changed-subjects) ;;
esac
python=.venv/bin/python
mkdir -p build

# What runs beside the tests, each with its log: `beside NAME NICE COMMAND...`, and `finish NAME`, which prints
# the log and its seconds, and fails as the command did.
declare -A running=() began=()
failed=()
# shellcheck disable=SC2329  # by the trap
stop_all() { for name in "${!running[@]}"; do kill -- "-${running[$name]}" 2>/dev/null || true; done; }
trap stop_all EXIT
beside() {
  setsid tools/nice.sh "$2" "${@:3}" >"build/$1.log" 2>&1 &
  running[$1]=$! began[$1]=$(date +%s)
}
finish() {
  local status=0
  [ -n "${running[$1]:-}" ] || return 0
  wait "${running[$1]}" || status=$?
  unset "running[$1]"
  cat "build/$1.log"
  local end=ended
  [ "$status" = 0 ] || end=FAILED
  echo "test: $1 $end after $(($(stat -c %Y "build/$1.log") - began[$1])) s"
  if [ "$status" != 0 ]; then failed+=("$1"); fi
  return "$status"
}
# The lines of a log that say what failed: doctest's, the sanitizers', compilers' and the scripts' own.
what_failed() { # NAME
  echo "test: $1 failed, by build/$1.log:"
  grep -aE '^TEST CASE: |^SUMMARY: |(error|ERROR|FAILED): |: the build .*failed' "build/$1.log" | sort -u | head -n 12 | cut -c -300 ||
    tail -n 3 "build/$1.log"
}

if [ "$form" != fast ]; then
  tools/debian_packages.sh dev
  # The longest chain of tests waits for it, so it goes before the others where that is allowed. Where it
  # cannot be built, the tests that need it say why.
  first=0
  if [ "$(id -u)" = 0 ]; then first=-5; fi
  if command -v mpicc >/dev/null && command -v patch >/dev/null; then beside site "$first" tools/site_build.sh; fi
fi
tools/setup.sh dev

mapfile -t not_run < <(tools/debian_packages.sh missing)
if echo '#include <doctest/doctest.h>' | g++ -x c++ -E - >/dev/null 2>&1; then
  case $form$core in
    fast) beside native 0 tools/native.sh --sanitizers=none ;;
    alldue) beside native 0 tools/native.sh --sanitizers=address ;;
    nightlydue) beside native 0 tools/native.sh --sanitizers=all --nightly ;;
  esac
fi
if [ "$form" = fast ]; then
  finish native
else
  if [ -n "$tidy" ]; then
    beside lint 10 make --no-print-directory lint
  else
    beside lint 10 tools/lint.sh --without=clang-tidy
  fi
  if [ "$form$cuda" = alldue ] && ! nvidia-smi -L >/dev/null 2>&1; then beside cuda 10 tools/cuda_objects.sh; fi
  # Only slow tests need it; 3: no MPI here, and they are skipped. Once more for MPICH, where Debian's is to be had.
  tools/c10d.sh >/dev/null || [ $? = 3 ]
  if ! unchanged mpich >/dev/null; then
    if mpich=$(tools/unpack_mpich.sh); then MPICXX=$mpich/mpicxx tools/c10d.sh >/dev/null || [ $? = 3 ]; fi
  fi
fi

status=0
log=build/pytest.log
rm -f build/pytest*.xml
if [ "$form" = nightly ]; then $python tests/kept_runs.py begin-nightly; fi
# More than cores: what waits for a job, for ranks or for packages leaves its core to others. Memory is not
# endless where cores are many.
processes=$(($(nproc) * 3 / 2))
[ "$processes" -le 8 ] || processes=8
$python -m pytest -n "$processes" --dist loadgroup --durations=40 --junitxml=build/pytest.xml "${chosen[@]}" "$@" 2>&1 |
  tee "$log" || status=$?
if [ "$form" != fast ]; then
  if ! finish lint; then
    status=1
  elif [ -n "$tidy" ]; then
    $python tools/documented.py ran tools/test.sh "make lint"
  else
    $python tools/documented.py left-out tools/test.sh "make lint" "without clang-tidy it ran: what that looks at $tidy_unchanged"
  fi
  finish native || status=1
  finish cuda || status=1
  mapfile -t shown < <($python tools/documented.py of tools/test.sh | grep '^tools/native.sh')
  for command in "${shown[@]}"; do
    if [ -z "$core" ]; then
      $python tools/documented.py left-out tools/test.sh "$command" "the core $core_unchanged"
    elif [ "$form" = all ]; then
      $python tools/documented.py left-out tools/test.sh "$command" "make test-nightly has the thread sanitizer, too"
    elif bash -euo pipefail -c "$command" >build/native-documented.log 2>&1; then
      $python tools/documented.py ran tools/test.sh "$command"
    else
      cat build/native-documented.log
      status=1
    fi
  done
  finish site >build/site_ended.log || true # the tests that wait for it show what it said if it failed
  tail -n 1 build/site_ended.log
fi

if [ ${#not_run[@]} -gt 0 ]; then
  echo "test: this machine goes without:"
  printf '  %s\n' "${not_run[@]}"
fi
reports=(build/pytest.xml)
[ "$form" = fast ] || reports+=(build/pytest-frameworks.xml)
$python tools/skips.py "${reports[@]}"
if [ "$form" != fast ]; then
  if [ -z "$core" ]; then echo "test: without native tests: the core $core_unchanged"; fi
  if [ -z "$tidy" ]; then echo "test: without clang-tidy: what it looks at $tidy_unchanged"; fi
  if [ -z "$cuda" ]; then echo "test: without GPU code: it $cuda_unchanged"; fi
fi
case $form in
  fast) echo "test: without the slow tests, which 'make test-all' runs" ;;
  all)
    echo "test: without other sizes and carriers of the same code, which 'make test-nightly' runs"
    echo "test: without the thread sanitizer, which 'make test-nightly' has"
    ;;
  nightly)
    # Of these something else is a part, or was not run here; and a choice of tests keeps nothing.
    without=(wheels) whole=yes
    if [ "$core" = due ] && [ ! -f build/native.log ]; then without+=(core); fi
    if [ "$cuda" = due ] && [ "$GEAR_WITH_CUDA" != ON ]; then without+=(cuda); fi
    for argument in "$@"; do
      case $argument in --require=*) ;; *) whole='' ;; esac
    done
    if [ "$status$whole" = 0yes ]; then
      $python tests/kept_runs.py keep-nightly "$(tail -n 1 "$log" | tr -d =)" "${without[@]}"
    fi
    ;;
esac
$python tests/kept_runs.py show
for name in "${failed[@]}"; do what_failed "$name"; done
tail -n 1 "$log"
exit "$status"
