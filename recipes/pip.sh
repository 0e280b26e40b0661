#!/usr/bin/env bash
# pip of the build, told where the site's packages are. Sourced by build.sh.

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
      options+=(-c "$RECORD/constraints.txt")
      ;;
  esac
  if [ "$command" = install ]; then options+=(--report "$(next_report)"); fi
  run "$BUILD/bin/python" -m pip --disable-pip-version-check --no-input "$command" "${options[@]}" "$@"
}

# The pinned versions, with the torch of the site. The step venv keeps them in the build.
pinned_versions() {
  sed -e '/^torch==/d' "$SOURCE/requirements/constraints.txt" "$SOURCE/requirements/site.txt"
  site_is torch off || printf 'torch==%s\n' "$(site torch)"
}

# Reports are kept under rising numbers: a step that was killed while pip installed has left one, and
# the repetition then finds part of it installed.
next_report() {
  local number=1
  dry || mkdir -p "$RECORD/pip"
  while [ -e "$RECORD/pip/$(printf %03d "$number").json" ]; do number=$((number + 1)); done
  printf '%s/pip/%03d.json' "$RECORD" "$number"
}
