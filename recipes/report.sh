#!/usr/bin/env bash
# What the build tells the person in front of it, and how commands are run. Sourced by build.sh.
# shellcheck disable=SC2034,SC2153  # variables of build.sh

say() { printf 'build: %s\n' "$(redacted "$*")"; }
complain() { printf 'build: %s\n' "$(redacted "$*")" >&2; }
usage_error() {
  complain "$*"
  exit 2
}
dry() { [ "$DRY_RUN" = 1 ]; }

# Names and passwords in URLs are for nobody to read.
redacted() { # text
  if [[ $1 == *://*@* ]]; then
    printf '%s' "$1" | sed -E 's|(://)[^/[:space:]]*@|\1***@|g'
  else
    printf '%s' "$1"
  fi
}

# A command as one would type it, without passwords.
quoted() {
  local word text=
  for word in "$@"; do
    [[ $word != *://*@* ]] || word=$(redacted "$word")
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    text+=" $word"
  done
  printf '%s' "${text# }"
}

# Runs a command with its output in the step's log, or prints it under --dry-run. Inside a step a
# failure of it ends the step with what diagnose.sh reads from the log.
run() {
  if dry; then
    printf '  %s\n' "$(quoted "$@")"
    return 0
  fi
  printf '+ %s\n' "$(quoted "$@")" >>"$LOG"
  local status=0
  "$@" >>"$LOG" 2>&1 || status=$?
  LAST_STATUS=$status LAST_COMMAND=$(quoted "$@")
  return "$status"
}

# Makes a file of what comes on standard input.
write() { # file
  if dry; then
    printf '  write %s\n' "$(quoted "$1")"
    cat >/dev/null
  else
    mkdir -p "$(dirname "$1")"
    cat >"$1"
  fi
}

# Ends the step. SENTENCE says what failed; HINT what to try. If a command has just failed and its
# output tells why, that is said instead.
fail() { # sentence [hint]
  local sentence=$1 hint=${2-} found=
  FAILED=1
  if [ "${LAST_STATUS:-0}" != 0 ]; then
    found=$(diagnose "$LOG") || found=
    if [ -n "$found" ]; then
      sentence+=": ${found%%$'\t'*}"
      hint=${found#*$'\t'}
    fi
  fi
  complain "[$STEP] $sentence"
  if [ "${LAST_STATUS:-0}" != 0 ]; then complain "  log:  $LOG, $(telling_line "$LOG")"; fi
  [ -z "$hint" ] || complain "  try:  $hint"
  exit 1
}

# For the manifest: what the steps chose and found. Each call replaces what the same call said before,
# so that a step that is run again leaves the same.
record_tool() { dry || printf '%s\n' "$2" | write "$RECORD/tools/$1"; } # name version
record_option() {                                                      # step key=value...
  local step=$1
  shift
  dry || printf '%s\n' "$@" | LC_ALL=C sort | write "$LAYER/share/gear/options/$step"
}
record_patch() { # name of a file in recipes/patches
  dry || write "$LAYER/share/gear/patches/$1" <"$SOURCE/recipes/patches/$1"
}
record_package() { # name version sha256 source
  dry || printf '%s\n' "$2" "$3" "$4" | write "$RECORD/packages/$1"
}
