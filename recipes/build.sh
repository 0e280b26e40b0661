#!/usr/bin/env bash
# Installs GEAR as an environment module, with torch, mpi4py, Horovod and DeepSpeed beneath it.
#
#   recipes/build.sh SITE --prefix DIR [--dry-run] [--resume] [--only STEP]
#   recipes/build.sh SITE --prefix DIR --uninstall [--dry-run]
#
#   SITE          a site file: facts about a machine (recipes/sites; template.conf explains them)
#   --prefix DIR  where to install: DIR/gear/<version>-<gpu|cpu> and DIR/modulefiles
#   --dry-run     print the commands and change nothing; the machine need not have what the site has
#   --resume      go on with an unfinished build after the last step that was done
#   --only STEP   do one step of the build in progress, or one check (preflight, smoke) of an installed
#                 version, and stop
#   --uninstall   remove this version and kind from DIR, and nothing else
#
# An installation has two layers: the base (torch, MPI, Horovod, DeepSpeed and all other packages), and GEAR
# on it. A base that is whole is never touched again: what changes in GEAR alone is built on the same one.
# A build is made beside what is installed and switched to at the very end. When nothing changed, nothing
# is done. Wheels that are built from source are kept in GEAR_BUILD_CACHE (default ~/.cache/gear/wheels).
# Exit code: 0 done, 1 failed (the installed version is as it was), 2 wrong usage or site file.
# shellcheck disable=SC2034  # the parts and the steps use these variables
set -euo pipefail

SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
here=$SOURCE/recipes
for part in report diagnose site users machine inputs pip install; do
  # shellcheck source=/dev/null
  . "$here/$part.sh"
done

base_steps=(venv torch packages mpi4py horovod deepspeed)
all_steps=(preflight "${base_steps[@]}" core c10d modulefiles smoke manifest)
usage() { sed -n '2,/^# Exit code/s/^# \{0,1\}//p' "$here/build.sh"; }

# --- arguments -----------------------------------------------------------------------------------

site_file='' PREFIX='' DRY_RUN=0 resume=0 only='' uninstall=0
while [ $# -gt 0 ]; do
  case $1 in
    --prefix | --only)
      [ $# -ge 2 ] || usage_error "[usage] $1 needs a value; --help shows how"
      if [ "$1" = --prefix ]; then PREFIX=$2; else only=$2; fi
      shift
      ;;
    --prefix=*) PREFIX=${1#*=} ;;
    --only=*) only=${1#*=} ;;
    --dry-run) DRY_RUN=1 ;;
    --resume) resume=1 ;;
    --uninstall) uninstall=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) usage_error "[usage] unknown option: given $1, allowed --prefix --dry-run --resume --only --uninstall --help" ;;
    *)
      [ -z "$site_file" ] || usage_error "[usage] more than one site file: given $site_file and $1, allowed one"
      site_file=$1
      ;;
  esac
  shift
done
[ -n "$site_file" ] || usage_error "[usage] no site file given; recipes/sites has some, --help shows how"
[ -n "$PREFIX" ] || usage_error "[usage] no --prefix given: the folder to install in"
[[ $PREFIX != \~* ]] ||
  usage_error "[usage] --prefix: given '$PREFIX', and no shell has put a folder in the place of ~: write \$HOME, as in --prefix=\$HOME/gear"
[[ $PREFIX =~ ^[A-Za-z0-9_./+@%,=~-]+$ ]] ||
  usage_error "[usage] --prefix: given '$PREFIX', allowed letters, digits and _ . / + @ % , = ~ -: neither a venv nor a module path can hold others"
if [ -n "$only" ] && [[ " ${all_steps[*]} " != *" $only "* ]]; then
  usage_error "[usage] --only: no such step: given $only, allowed ${all_steps[*]}"
fi
# By the name that it was given: whoever points a link elsewhere later takes users along.
PREFIX=$(realpath -ms -- "$PREFIX")
if [ -z "${HOME-}${GEAR_BUILD_CACHE-}${XDG_CACHE_HOME-}" ]; then
  usage_error "[usage] HOME is not set, and wheels that are built are kept below it: set HOME, or GEAR_BUILD_CACHE to a folder"
fi
if [ -n "${TMPDIR-}" ]; then TMPDIR=$(realpath -ms -- "$TMPDIR"); fi
SCRATCH=$(mktemp -d 2>/dev/null) ||
  usage_error "[usage] TMPDIR: given '${TMPDIR:-/tmp}', allowed a folder that can be written to: set it to one, or unset it"
trap 'rm -rf "$SCRATCH"' EXIT
STEP=preflight LOG=/dev/null BUILD=$PREFIX
if ! dry && [ "$(room_mib "$SCRATCH")" -lt 64 ]; then
  fail "too little room in ${TMPDIR:-/tmp} for temporary files: $(room_mib "$SCRATCH") MiB are free, 64 are needed" \
    "free some, or set TMPDIR to a folder that has room"
fi

# --- the site and the machine --------------------------------------------------------------------

site_read "$site_file"
KIND=$([ -n "$(site cuda_home)" ] && echo gpu || echo cpu)
VERSION=$(project version)
NAME=$VERSION-$KIND
HOME_LINK=$PREFIX/gear/$NAME
MODULE_DIR=$PREFIX/modulefiles/gear
PREVIOUS=$PREFIX/gear/.builds/.$NAME.previous
CACHE=$(realpath -ms -- "${GEAR_BUILD_CACHE:-${XDG_CACHE_HOME:-${HOME-}/.cache}/gear/wheels}")
STEP=site
# Python looks for packages where it is started first: not in the source, and not where somebody happens to be.
cd /

# Steps that this site has; the others are switched off by it.
active_steps() {
  local step
  for step in "${all_steps[@]}"; do
    case $step in
      torch | mpi4py | horovod | deepspeed | c10d) if site_is "$step" off; then continue; fi ;;
    esac
    printf '%s\n' "$step"
  done
}
mapfile -t steps < <(active_steps)

if [ -n "$only" ] && [[ " ${steps[*]} " != *" $only "* ]]; then
  usage_error "[usage] --only $only: this site has $only = off"
fi

# Only one at a time in a prefix; the lock goes with the process, and with what it has started.
lock() {
  local STEP=prefix status=0
  if ! dry; then
    { mkdir -p "$PREFIX/gear/.builds" && : >>"$PREFIX/gear/.builds/.lock"; } 2>"$SCRATCH/error" ||
      fail "$PREFIX cannot be written: $(sed 's/^.*: //' "$SCRATCH/error" | tail -n 1)" "choose a --prefix that can be written"
    exec 9>>"$PREFIX/gear/.builds/.lock"
    command -v flock >/dev/null || fail "there is no command 'flock'" "install it (Debian: util-linux)"
    flock -n 9 2>"$SCRATCH/error" || status=$?
    case $status in
      0) ;;
      1) fail "another build is running in $PREFIX" "wait for it; fuser $PREFIX/gear/.builds/.lock names its processes" ;;
      *) fail "$PREFIX cannot be locked: $(sed 's/^.*: //' "$SCRATCH/error" | tail -n 1)" \
        "choose a --prefix on a file system that has locks (flock)" ;;
    esac
  fi
}

umask 022
STEP=prefix
if [ "$uninstall" = 1 ]; then
  if [ -d "$PREFIX/gear/.builds" ]; then lock; fi
  uninstall
  exit 0
fi

# A setup.py may import what lies beside it: no PYTHONSAFEPATH.
unset PYTHONPATH PYTHONHOME PYTHONSAFEPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_REPORT
STEP=modules
load_modules
if [ -n "${PYTHONPATH-}" ]; then
  complain "[modules] the site's modules set PYTHONPATH=$PYTHONPATH: this build does without it, but with gear/$NAME loaded its packages come before GEAR's own"
fi
unset PYTHONPATH PYTHONHOME
STEP=preflight
if ! PYTHON=$(find_python); then
  dry || [ -z "$(site stand_on)" ] ||
    fail "stand_on = $(site stand_on) has no Python to build with: $(why_no_python)" \
      "set stand_on to the folder of an environment, the one above bin/python, of Python 3.10 to 3.13"
  dry || fail "there is no suitable Python: $(why_no_python)" \
    "install one (Debian: python3-venv python3-dev), load its module, or set python in the site file"
  PYTHON=$(site python)
  PYTHON=${PYTHON%% *}
fi
export PYTHONNOUSERSITE=1 SOURCE_DATE_EPOCH=1577836800
CC=$(site cc) CXX=$(site cxx) MAX_JOBS=$(site jobs)
export CC CXX MAX_JOBS MAKEFLAGS="-j$MAX_JOBS" CMAKE_BUILD_PARALLEL_LEVEL="$MAX_JOBS"
if [ "$KIND" = gpu ]; then
  CUDA_HOME=$(site cuda_home)
  export CUDA_HOME CUDACXX="$CUDA_HOME/bin/nvcc" PATH="$CUDA_HOME/bin:$PATH"
fi
if [ -n "$(site proxy)" ]; then
  https_proxy=$(site proxy) http_proxy=$(site proxy) PIP_PROXY=$(site proxy)
  export https_proxy http_proxy PIP_PROXY
fi

BASE_NAME=base-$KIND-$(base_hash)
BASE=$PREFIX/gear/.builds/$BASE_NAME
BUILD_NAME=$NAME-$(build_hash)
BUILD=$PREFIX/gear/.builds/$BUILD_NAME

# --- the build -----------------------------------------------------------------------------------

for name in "${steps[@]}"; do
  # shellcheck source=/dev/null
  . "$here/steps/$name.sh"
done

is_base_step() { [[ " ${base_steps[*]} " == *" $1 "* ]]; }
layer_of() { if is_base_step "$1"; then echo "$BASE"; else echo "$BUILD"; fi; } # step
mark_of() { printf '%s/share/gear/steps/%s.done' "$(layer_of "$1")" "$1"; }     # step
is_done() { [ -f "$(mark_of "$1")" ]; }

base_is_whole() {
  local step
  for step in "${steps[@]}"; do
    if is_base_step "$step"; then is_done "$step" || return 1; fi
  done
}

# In a shell of its own: what steps tell each other is in the folders of the layers, so that a build that
# goes on is the same as one that never stopped.
do_step() { # name number
  local name=$1 number=$2 started=$SECONDS status
  STEP=$name LAYER=$(layer_of "$1")
  RECORD=$LAYER/share/gear/record LOG=$LAYER/share/gear/logs/$(printf '%02d' "$number")-$name.log
  say "[$number/${#steps[@]}] $name"
  if ! dry; then
    undo "$name" "$number"
    rm -rf "$LAYER/work"
    : >"$LOG" || fail "the log $LOG cannot be written" "df -h $LAYER shows the room that is left"
  fi
  set +e
  (
    set -euo pipefail
    trap 'FAILED=1; exit 130' INT TERM
    trap '[ $? = 0 ] || [ -n "${FAILED-}" ] || unexplained' EXIT
    PATH=$LAYER/bin:$PATH
    "${name}_step"
  )
  status=$?
  set -e
  if [ "$status" != 0 ]; then
    if [ -L "$HOME_LINK" ]; then complain "  gear/$NAME, installed before, is as it was"; fi
    exit 1
  fi
  if ! dry; then
    rm -rf "$LAYER/work"
    : >"$(mark_of "$name")"
    say "  done in $((SECONDS - started)) s"
  fi
}

# A command has failed that the step has no words for.
unexplained() {
  fail "a command failed: ${LAST_COMMAND:-see the messages above}" \
    "read the log of this step; after a remedy repeat with --resume"
}

# What came after a step is no longer what would come of it. Not so for a check, nor in a base that is whole:
# no step of it is repeated.
undo() { # name number
  local name
  rm -f "$(mark_of "$1")"
  case $1 in
    preflight) return 0 ;;
    smoke) if installed; then return 0; fi ;;
  esac
  for name in "${steps[@]:$2}"; do rm -f "$(mark_of "$name")"; done
}

room_of() { du -sm "$1" | cut -f 1; } # folder, in MiB

# What is in a layer names the place where it was made: moved, or copied, it runs no more.
made_here() { [ -f "$1/share/gear/place" ] && [ "$(cat "$1/share/gear/place")" -ef "$1" ]; } # layer

lock
STEP=build
if ! dry; then
  for LAYER in "$BASE" "$BUILD"; do
    if [ -d "$LAYER/share/gear" ] && ! made_here "$LAYER"; then
      say "${LAYER##*/} was not made here but in $(cat "$LAYER/share/gear/place" 2>/dev/null || echo 'another place'), and does not run here: it is made anew"
      rm -rf "$LAYER"
    fi
  done
fi
if ! dry && installed && [[ -z $only ]]; then
  number=${#steps[@]}
  if ! is_done manifest || ! site_values | cmp -s - "$BUILD/share/gear/site"; then
    say "gear/$NAME is installed in $PREFIX; of the site only what is tried and told with it has changed"
    do_step smoke $((number - 1))
    do_step manifest "$number"
    told=1
  fi
  if site_is default_module on && [ "$(default_name)" != "$NAME" ]; then
    set_default "$NAME"
    say "the default module is gear/$NAME now; it is installed in $PREFIX and nothing else has changed"
    exit 0
  fi
  [ -n "${told-}" ] || say "nothing to do: gear/$NAME is installed in $PREFIX and nothing has changed"
  exit 0
fi
say "gear/$NAME by $site_file in $BUILD on $BASE_NAME"

if [ -n "$only" ]; then
  if installed && [[ $only != preflight && $only != smoke ]]; then
    say "nothing to do: gear/$NAME is installed; only its checks (preflight, smoke) are repeated"
    exit 0
  fi
  if is_base_step "$only" && base_is_whole; then
    say "nothing to do: $BASE_NAME is whole; other builds may stand on it"
    exit 0
  fi
elif ! dry && [ "$resume" = 0 ]; then
  unfinished=()
  if [ -d "$BASE" ] && ! base_is_whole; then unfinished+=("$BASE"); fi
  if [ -d "$BUILD" ] && ! is_done manifest; then unfinished+=("$BUILD"); fi
  if [ ${#unfinished[@]} != 0 ]; then
    say "starting afresh: an unfinished build is here (--resume would go on with it)"
    rm -rf "${unfinished[@]}"
  fi
elif ! dry && [ ! -d "$BUILD" ] && [ ! -d "$BASE" ]; then
  say "nothing to resume: no build with these inputs was begun"
fi
if ! dry; then
  mkdir -p "$CACHE" 2>"$SCRATCH/error" ||
    fail "GEAR_BUILD_CACHE = $CACHE cannot be made: $(sed 's/^.*: //' "$SCRATCH/error" | tail -n 1)" \
      "set GEAR_BUILD_CACHE to a folder for the wheels that are built here"
  { mkdir -p "$BASE"/share/gear/{steps,record,logs} "$BUILD"/share/gear/{steps,record,logs} &&
    for LAYER in "$BASE" "$BUILD"; do made_here "$LAYER" || echo "$LAYER" >"$LAYER/share/gear/place" || break; done &&
    ln -sfn "../$BASE_NAME" "$BUILD/base"; } 2>"$SCRATCH/error" ||
    fail "the build's folders cannot be made: $(tail -n 1 "$SCRATCH/error")" "df -h $PREFIX shows the room that is left"
fi

trap 'complain "interrupted; --resume goes on with this build"; exit 130' INT TERM
number=0 started=$SECONDS
for name in "${steps[@]}"; do
  number=$((number + 1))
  if [ -n "$only" ] && [ "$name" != "$only" ]; then
    if is_done "$name" || dry || [ "$only" = preflight ]; then continue; fi
    STEP=$only
    [ "$number" -gt "$(printf '%s\n' "${steps[@]}" | grep -nxF "$only" | cut -d: -f1)" ] ||
      fail "step $name is not done yet" "repeat without --only, with --resume, or do the steps before it: ${steps[*]}"
    continue
  fi
  if [ -z "$only" ] && ! dry && is_done "$name"; then
    say "[$number/${#steps[@]}] $name: done before"
    continue
  fi
  do_step "$name" "$number"
done

STEP=switch
if ! dry; then
  for name in "${steps[@]}"; do
    is_done "$name" || exit 0 # --only
  done
fi
if [ -n "$only" ] && [ "$only" != manifest ]; then exit 0; fi
switch_to_build
dry && exit 0
say "gear/$NAME is installed: $((SECONDS - started)) s, $(room_of "$BUILD") MiB in $BUILD on $(room_of "$BASE") MiB in $BASE_NAME"
say "to use it: module use $PREFIX/modulefiles && module load gear/$NAME"
said=$(only_for_some)
if [ -n "$said" ]; then say "note: $said"; fi
