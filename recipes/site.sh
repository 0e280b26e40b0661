#!/usr/bin/env bash
# Reads a site file: `key = value` lines and comments. It is data: nothing in it is run or expanded.
# Sourced by build.sh. recipes/sites/template.conf explains every key.

# key | kind | default. A kind says what a value may be: see site_check. An empty value is the default.
site_keys='
name                line
modules             words
module_init         path
python              words     python3 python3.12 python3.11 python3.13 python3.10
stand_on            path
cc                  command   gcc
cxx                 command   g++
jobs                number
cuda_home           path
cuda_architectures  archs     75;80;86;89;90;100;120
nccl                nccl
nccl_source         source
nccl_profile        release|debug  release
nccl_functions      line
mpi                 on|off    on
mpicc               command   mpicc
mpicxx              command   mpicxx
mpirun              words     mpirun
mpirun_options      line
verbs               auto|off  auto
fabric              auto|off  auto
torch               version   2.13.0
torch_index         url
torchvision         on|off    off
torchaudio          on|off    off
pip_index           url
proxy               url
wheelhouse          path
mpi4py              on|off    on
horovod             on|off    on
horovod_gloo        on|off    off
deepspeed           on|off    on
deepspeed_ops       words
c10d                auto|on|off  auto
default_module      on|off    on
'

declare -A SITE=() # effective values

site() { printf '%s' "${SITE[$1]?site: no such key: $1}"; }
site_is() { [ "$(site "$1")" = "$2" ]; }

# Reads FILE into SITE; the first thing that is wrong ends the program with a sentence, code 2.
site_read() { # file
  local file=$1 key kind default value line number=0
  local -A kinds=() lines=()
  [ -f "$file" ] || usage_error "[site] no such site file: given $file; the ones that come with GEAR are in recipes/sites"
  [ -r "$file" ] || usage_error "[site] $file cannot be read; check its permissions"
  while read -r key kind default; do
    [ -n "$key" ] || continue
    kinds[$key]=$kind SITE[$key]=$default
  done <<<"$site_keys"

  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%$'\r'}
    [[ $line =~ ^[[:space:]]*(#.*)?$ ]] && continue
    [[ $line =~ ^[[:space:]]*([A-Za-z0-9_.]+)[[:space:]]*=[[:space:]]*(.*[^[:space:]])?[[:space:]]*$ ]] ||
      usage_error "[site] $file, line $number: given '$line', allowed 'key = value' or a comment (#); write one key on a line"
    key=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
    kind=${kinds[$key]-}
    [[ $key =~ ^env\.[A-Za-z_][A-Za-z0-9_]*$ ]] && kind=variable
    [ -n "$kind" ] ||
      usage_error "[site] $file, line $number: no such key: given '$key', allowed env.NAME and ${!kinds[*]}; recipes/sites/template.conf explains them"
    [ -z "${lines[$key]-}" ] ||
      usage_error "[site] $file, line $number: '$key' is set twice, first in line ${lines[$key]}; keep one"
    lines[$key]=$number
    if [[ $key != env.* ]]; then [ -n "$value" ] || continue; fi
    site_check "$file, line $number" "$key" "$kind" "$value"
    SITE[$key]=$value
  done <"$file"
  site_settle "$file"
}

site_check() { # where key kind value
  local where=$1 key=$2 kind=$3 value=$4 allowed=
  case $key in
    env.PATH | env.HOME | env.GEAR_HOME | env.GEAR_VERSION | env.PYTHON* | env.MODULEPATH | env.LOADEDMODULES)
      usage_error "[site] $where: '$key' is not the site's to set: given '$value', allowed variables of the fabric and of libraries; the module sets PATH and GEAR's own itself, and a module of the site may bring more (modules)"
      ;;
  esac
  case $kind in
    variable)
      if [[ $value == *[$'\t\v\f']* ]]; then
        allowed='a line of text without tabs'
      elif [[ $value == *'$'* ]]; then
        allowed='a value without $ (nothing is expanded: write it out)'
      fi
      ;;
    line) [[ $value != *[$'\t\v\f']* ]] || allowed='a line of text without tabs' ;;
    words) [[ $value =~ ^[A-Za-z0-9_./+\ -]+$ ]] || allowed='names separated by spaces' ;;
    command) [[ $value =~ ^[A-Za-z0-9_./+-]+$ ]] || allowed='a command: its name or its path' ;;
    path) [[ $value == /* ]] || allowed='an absolute path (nothing is expanded: neither ~ nor a variable)' ;;
    source) [[ $value =~ ^(/.+|[a-z+]+://[^[:space:]]+)$ ]] || allowed='an absolute path, or a URL, as in https://host/path' ;;
    url) [[ $value =~ ^[a-z+]+://[^[:space:]]+$ ]] || allowed='a URL, as in https://host/path' ;;
    number) [[ $value =~ ^[1-9][0-9]*$ ]] || allowed='a whole number from 1 on' ;;
    archs) [[ $value =~ ^[0-9]+[af]?(;[0-9]+[af]?)*$ ]] || allowed="compute capabilities, as in 80;90" ;;
    version) [[ $value =~ ^(off|[0-9][0-9A-Za-z.+]*)$ ]] || allowed='a version, as in 2.13.0, or off' ;;
    nccl) [[ $value =~ ^(off|wheel|module|source|/.+)$ ]] ||
      allowed='off, wheel, module, source, or the absolute path of an NCCL' ;;
    *) [[ "|$kind|" == *"|$value|"* ]] || allowed=${kind//|/ or } ;;
  esac
  [ -z "$allowed" ] ||
    usage_error "[site] $where: bad value of '$key': given '$value', allowed $allowed; correct the line"
}

# The release of torchvision or torchaudio that was made for the torch of the site, whatever build of it that is
# (2.13.0+cpu); nothing where none is known.
release_for_torch() { # torchvision | torchaudio
  awk -v torch="${SITE[torch]%%+*}" -v column="$([ "$1" = torchvision ] && echo 2 || echo 3)" \
    '$1 == torch {print $column}' "$SOURCE/requirements/torch-releases.txt"
}

known_torches() { awk '!/^(#|$)/ {print $1}' "$SOURCE/requirements/torch-releases.txt" | xargs; }

# torch, and what else was made for it, one requirement a line.
torch_requirements() {
  local package
  if site_is torch off; then return 0; fi
  printf 'torch==%s\n' "$(site torch)"
  for package in torchvision torchaudio; do
    site_is "$package" off || printf '%s==%s\n' "$package" "$(release_for_torch "$package")"
  done
}

# Values that depend on others, and contradictions.
site_settle() { # file
  local file=$1 key
  [ -n "${SITE[jobs]}" ] || SITE[jobs]=$(nproc)
  [ -n "${SITE[nccl]}" ] || SITE[nccl]=$([ -n "${SITE[cuda_home]}" ] && echo wheel || echo off)
  if [ -z "${SITE[deepspeed_ops]}" ]; then
    SITE[deepspeed_ops]=$([ -n "${SITE[cuda_home]}" ] && echo fused_adam || echo shm_comm)
  fi
  if [ "${SITE[nccl]}" != off ] && [ -z "${SITE[cuda_home]}" ]; then
    usage_error "[site] $file: nccl = ${SITE[nccl]} needs CUDA: set cuda_home, or nccl = off"
  fi
  if [ -n "${SITE[stand_on]}" ]; then
    [ -z "${lines[python]-}" ] ||
      usage_error "[site] $file: stand_on = ${SITE[stand_on]} has a Python of its own, and python = ${SITE[python]} is another word for it: remove that line"
    case ${SITE[nccl]} in
      off | wheel) ;;
      *) usage_error "[site] $file: nccl = ${SITE[nccl]} would change the torch of stand_on = ${SITE[stand_on]}, which is not the build's: set nccl = wheel, its own" ;;
    esac
    [[ ${SITE[stand_on]} != *[[:space:]]* ]] ||
      usage_error "[site] $file: stand_on = ${SITE[stand_on]} has a space in it, which commands of an environment do not bear: name it by a link without one"
    SITE[python]=${SITE[stand_on]}/bin/python
  fi
  if [ "${SITE[nccl]}" = source ] && [ -z "${SITE[nccl_source]}" ]; then
    usage_error "[site] $file: nccl = source needs nccl_source: the URL or path of NCCL's source"
  fi
  for key in torch mpi; do
    if [ "${SITE[c10d]}" = on ] && [ "${SITE[$key]}" = off ]; then
      usage_error "[site] $file: c10d = on needs $key: set $key, or c10d = off"
    fi
  done
  if [ "${SITE[torch]}" = off ]; then SITE[c10d]=off; fi
  for key in horovod deepspeed torchvision torchaudio; do
    if [ "${SITE[$key]}" = on ] && [ "${SITE[torch]}" = off ]; then
      usage_error "[site] $file: $key = on needs torch: set torch to a version, or $key = off"
    fi
  done
  for key in torchvision torchaudio; do
    if [ "${SITE[$key]}" = on ] && [ -z "$(release_for_torch "$key")" ]; then
      usage_error "[site] $file: $key = on: no release of it is known for torch ${SITE[torch]}, only for $(known_torches); take one of them, or add a line to requirements/torch-releases.txt"
    fi
  done
  for key in horovod mpi4py; do
    if [ "${SITE[$key]}" = on ] && [ "${SITE[mpi]}" = off ]; then
      usage_error "[site] $file: $key = on needs MPI: set mpi = on, or $key = off"
    fi
  done
}

# All effective values, sorted, as the manifest holds them: without passwords, and without those that are
# the same installation on another node, or in other hands.
site_values() {
  local key
  for key in "${!SITE[@]}"; do
    case $key in
      jobs | default_module) ;;
      *) printf '%s = %s\n' "$key" "$(redacted "${SITE[$key]}")" ;;
    esac
  done | LC_ALL=C sort
}

# Those that determine a layer, sorted, as they are: for its hash. Another way by which the same packages come
# is none of them, so that a build which found no network goes on by that way; nor is what makes `module` known,
# the site's name, or how the smoke test starts ranks.
site_inputs() { # base | build
  local key
  for key in "${!SITE[@]}"; do
    case $key in
      jobs | default_module | module_init | proxy | pip_index | wheelhouse) continue ;;
      name | mpirun | mpirun_options) continue ;;
      c10d | env.*) [ "$1" = build ] || continue ;;
    esac
    printf '%s = %s\n' "$key" "${SITE[$key]}"
  done | LC_ALL=C sort
}

# Names of the site's environment presets (env.NAME), sorted.
site_presets() { site_values | sed -n 's/^env\.\([A-Za-z0-9_]*\) = .*/\1/p'; }
