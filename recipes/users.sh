#!/usr/bin/env bash
# Whether those for whom GEAR is installed reach it: a build by root looks at itself as an ordinary user.
# Sourced by build.sh.

ORDINARY=65534 # nobody: owns nothing, and is in no group that does

# The first folder on the way to PATH that is closed to others, with its mode; nothing if there is none.
closed_folder() { # path
  local path folder name mode
  for path in "$(realpath -ms -- "$1")" "$(realpath -m -- "$1")"; do
    folder=
    while IFS= read -r -d / name; do
      folder+=$name/
      mode=$(stat -Lc '%a %A' -- "$folder" 2>/dev/null) || return 0 # it will be made, for all
      if ((!(8#${mode%% *} & 1))); then
        printf '%s (%s)' "${folder%/}" "${mode#* }"
        return 0
      fi
    done <<<"$path/"
  done
}

# What runs when the interpreter PYTHON makes an environment: its program and its library.
python_files() { # python
  "$1" -c 'import os, sys; print(getattr(sys, "_base_executable", sys.executable), os.__file__, sep="\n")' \
    2>/dev/null || true
}

# What keeps others from running PYTHON: "its place, closed folder (mode)"; nothing if nothing does.
python_closed() { # python
  local file closed
  while IFS= read -r file; do
    closed=$(closed_folder "$file")
    if [ -n "$closed" ]; then
      printf '%s, below %s' "$(realpath -m -- "$file")" "$closed"
      return 0
    fi
  done < <(python_files "$1")
}

# For preflight, and once more at the end: whom this installation is not for, a sentence; nothing if all
# may use it.
only_for_some() {
  local closed file files=${_LMFILES_-}
  closed=$(closed_folder "$PREFIX")
  if [ -n "$closed" ]; then
    printf '%s is closed to others: users who may not enter it cannot use what is installed in %s' "$closed" "$PREFIX"
    return 0
  fi
  closed=$(python_closed "$PYTHON")
  if [ -n "$closed" ]; then
    printf '%s is closed to others, and what is built with it does not run for them: %s' \
      "the Python $closed" "set python = /usr/bin/python3 in the site file, or another one that all users can run"
    return 0
  fi
  if [ -n "$(site stand_on)" ]; then
    closed=$(closed_folder "$(site stand_on)/lib")
    if [ -n "$closed" ]; then
      printf '%s is closed to others, and what stands on it does not run for them: %s' \
        "stand_on = $(site stand_on), below $closed," "open it, or set stand_on to an environment that all users can read"
      return 0
    fi
  fi
  for file in ${files//:/ }; do
    closed=$(closed_folder "$file")
    if [ -n "$closed" ]; then
      printf '%s is closed to others, and they cannot load a module of the site: %s' "$closed" "$file"
      return 0
    fi
  done
}

# A command behind these words is run by that user, who keeps what he writes to himself.
# shellcheck disable=SC2016,SC2034  # expanded by that bash; used by steps
ordinary=(setpriv "--reuid=$ORDINARY" "--regid=$ORDINARY" --clear-groups bash -c 'umask 077; exec "$@"' bash)

# The PATH of that user: the builder's, without folders that are closed to him. Looked for in one of those, a
# command that is not there is "Permission denied".
open_path() {
  local folder folders=() path=
  IFS=: read -ra folders <<<"$PATH"
  for folder in "${folders[@]}"; do
    if [ -d "$folder" ] && [ -z "$(closed_folder "$folder")" ]; then path+=${path:+:}$folder; fi
  done
  printf '%s' "$path"
}

# Why nothing can be run as that user here; nothing if it can.
no_ordinary_user() {
  if [ "$(id -u)" != 0 ]; then
    echo 'the builder is not root'
  elif [ -n "$(only_for_some)" ]; then
    echo 'others cannot reach it'
  elif ! "${ordinary[@]}" true 2>/dev/null; then
    echo 'setpriv cannot become another user here'
  fi
}

# The processes of this node that run on a build, or have it on their PATH, "number (program)" each. Left out
# are those that have called this build.sh and those that it is in a pipeline with. Only root sees those of
# others.
processes_on() { # build
  local found='' number=$BASHPID group
  local -A mine=()
  group=$(group_of "$number")
  while [ "${number:-0}" -gt 0 ]; do
    mine[$number]=1
    number=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$number/status" 2>/dev/null) || number=0
  done
  grep -lsaF -e "$1/" -e "$(realpath -m -- "$1")/" /proc/[0-9]*/{maps,environ} 2>/dev/null |
    cut -d / -f 3 | sort -nu >"$SCRATCH/processes" || true
  while read -r number; do
    # One that has ended by now was part of the search.
    if [ -n "${mine[$number]-}" ] || [ ! -d "/proc/$number" ]; then continue; fi
    [ "$(group_of "$number")" = "$group" ] ||
      found+="${found:+, }$number ($(cat "/proc/$number/comm" 2>/dev/null || true))"
  done <"$SCRATCH/processes"
  printf '%s' "$found"
}

group_of() { sed -n 's/.*) [A-Za-z] [0-9]* \([0-9]*\) .*/\1/p' "/proc/$1/stat" 2>/dev/null || true; } # process
