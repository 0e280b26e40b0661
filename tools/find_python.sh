#!/usr/bin/env bash
# Prints an interpreter that GEAR can be built with: PYTHON, else the first suitable of python3,
# python3.13 ... python3.10, and those of pyenv. Exit 1 without one.
set -euo pipefail

# Suitable: the version, venv with pip, and the headers to build an extension with.
suits() {
  "$1" - <<'PY' 2>/dev/null
import os, sys, sysconfig
import ensurepip, venv
version = (3, 10) <= sys.version_info[:2] <= (3, 13)
headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(not (version and headers))
PY
}

for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.10 \
  "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[0123].*/bin/python3 /usr/bin/python3; do
  if command -v "$candidate" >/dev/null && suits "$candidate"; then
    exec "$candidate" -c 'import sys; print(sys.executable)'
  fi
done
exit 1
