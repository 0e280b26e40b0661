#!/usr/bin/env bash
# Checks an installed module where its users run it, by ReFrame and the checks of tests/site/checks:
#
#   tests/site/run.sh SETTINGS --run                             all that the partitions can run
#   tests/site/run.sh SETTINGS --list                            their names
#   tests/site/run.sh SETTINGS --run -n LinksReach -S LinksReach.keep=yes
#                                                                measures, and keeps the rates
#
# SETTINGS is your copy of tests/site/settings.py, in a folder that all nodes see: what the checks write is
# beside it. What follows goes to ReFrame. `-S LinksReach.least=0.5` lets rates fall to half of what was kept.
# ReFrame is in build/reframe; the first call installs it there, from PyPI (PYTHON chooses the interpreter).
# Exit 0: all passed; 1: a check failed; 2: a wrong command line.
set -euo pipefail
version=4.10.4
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/build/reframe

die() { echo "site: $*" >&2; exit 2; }

install_reframe() {
  local python
  python=$("$root/tools/find_python.sh") || die "no Python 3.10 to 3.13 with venv: set PYTHON to one"
  echo "site: installing ReFrame $version in $venv (240 MB)" >&2
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip --disable-pip-version-check -qq install "reframe-hpc==$version" ||
    die "pip could not install reframe-hpc==$version; what it said is above"
}

[ $# -ge 2 ] || die "which settings, and what to do: tests/site/run.sh SETTINGS --run"
[ -f "$1" ] || die "$1 is no file: copy $root/tests/site/settings.py, and name the copy"
settings=$(realpath -- "$1")
shift
mkdir -p "$root/build"
exec 9>"$root/build/reframe.lock"
flock 9
[ "$("$venv/bin/reframe" --version 2>/dev/null || true)" = "$version" ] || install_reframe

exec 9>&-
# Beside the settings, and not in the caller's HOME.
cd -- "$(dirname -- "$settings")"
exec "$venv/bin/reframe" --config-file="$settings" --checkpath="$root/tests/site/checks" \
  --report-file="$PWD/report.json" "$@"
