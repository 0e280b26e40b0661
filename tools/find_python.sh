#!/usr/bin/env bash
# Prints an interpreter that GEAR can be built with: PYTHON, else the first suitable of python3,
# python3.13 ... python3.10, and those of pyenv. Exit 1 without one.
#
#   tools/find_python.sh [VERSION]       of that version, as 3.12: also one that is later than 3.13
set -euo pipefail

version=${1:-}
of_pyenv=("${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[0123].*/bin/python3)
if [ -n "$version" ]; then of_pyenv=("${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python3); fi

# Suitable: the version, venv with pip, and the headers to build an extension with.
suits() {
  "$1" - "$version" <<'PY' 2>/dev/null
import os, sys, sysconfig
import ensurepip, venv
this, wanted = sys.version_info[:2], sys.argv[1]
version = "%d.%d" % this == wanted if wanted else (3, 10) <= this <= (3, 13)
headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(not (version and headers))
PY
}

for candidate in ${PYTHON:+"$PYTHON"} ${version:+"python$version"} python3 python3.13 python3.12 python3.11 python3.10 \
  "${of_pyenv[@]}" /usr/bin/python3; do
  if command -v "$candidate" >/dev/null && suits "$candidate"; then
    exec "$candidate" -c 'import sys; print(sys.executable)'
  fi
done
exit 1
