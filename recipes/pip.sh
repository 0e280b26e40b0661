#!/usr/bin/env bash
# pip of the layer that a step fills, told where the site's packages are. Sourced by build.sh.

# pip COMMAND ARGUMENTS...: install, download and wheel get the site's index or wheelhouse and the pinned
# versions; what install takes is reported for the manifest. The site's proxy is in the environment
# (PIP_PROXY), where no list of processes shows it.
pip() {
  local command=$1 options=()
  shift
  case $command in
    install | download | wheel)
      if [ -n "$(site wheelhouse)" ]; then
        options+=(--no-index --find-links "$(site wheelhouse)")
      elif [ -n "$(site pip_index)" ]; then
        options+=(--index-url "$(site pip_index)")
      fi
      options+=(-c "$BASE/share/gear/record/constraints.txt")
      ;;
  esac
  if [ "$command" = install ]; then
    drop_unfinished
    options+=(--report "$(next_report)")
  fi
  run "$LAYER/bin/python" -m pip --disable-pip-version-check --no-input "$command" "${options[@]}" "$@"
}

# What a pip that was killed has left of a package, which the next one would take for installed. pip writes
# RECORD at the very end, and the file INSTALLER is in it then; until then it is as the wheel has it.
drop_unfinished() {
  local info
  for info in "$LAYER"/lib/python3*/site-packages/*.dist-info; do
    if [ -d "$info" ] && ! grep -q '\.dist-info/INSTALLER,' "$info/RECORD" 2>/dev/null; then
      run rm -rf "$info"
    fi
  done
}

# Reports are kept under rising numbers: a step that was killed while pip installed has left one, and
# the repetition then finds part of it installed.
next_report() {
  local number=1
  dry || mkdir -p "$RECORD/pip"
  while [ -e "$RECORD/pip/$(printf %03d "$number").json" ]; do number=$((number + 1)); done
  printf '%s/pip/%03d.json' "$RECORD" "$number"
}
