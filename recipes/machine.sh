#!/usr/bin/env bash
# What the build finds on this machine: Python, compilers, MPI, CUDA, and the site's modules.
# Sourced by build.sh. Looks only; nothing is changed.

# What a Python lacks to make an installation with; 'nothing' if it will do.
python_lacks() { # command
  local answer
  answer=$("$1" - 2>/dev/null <<'PY'
import os, sys, sysconfig
lacks = []
if not (3, 10) <= sys.version_info[:2] <= (3, 13):
    lacks.append("its version is %d.%d, not 3.10 to 3.13" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError:
    lacks.append("it has no venv (Debian: python3-venv)")
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    lacks.append("it has no headers (Debian: python3-dev)")
print("; ".join(lacks) or "nothing")
PY
  ) || answer=
  printf '%s' "${answer:-it is no Python}"
}

# The first suitable of the site's `python` commands, as a path; status 1 if there is none. One that users
# of PREFIX cannot run, as one below root's home, is taken only if there is no other on PATH.
find_python() {
  local candidate python closed=
  for candidate in $(site python); do
    while read -r python; do
      [ "$(python_lacks "$python")" = nothing ] || continue
      if [ -z "$(closed_folder "$PREFIX")" ] && [ -n "$(python_closed "$python")" ]; then
        closed=${closed:-$python}
        continue
      fi
      "$python" -c 'import sys; print(sys.executable)'
      return 0
    done < <(type -aP "$candidate")
  done
  [ -n "$closed" ] && "$closed" -c 'import sys; print(sys.executable)'
}

# Why none of them will do, one sentence.
why_no_python() {
  local candidate text=
  for candidate in $(site python); do
    if command -v "$candidate" >/dev/null; then
      text+=", $candidate: $(python_lacks "$candidate")"
    else
      text+=", $candidate: not on PATH"
    fi
  done
  printf '%s' "${text#, }"
}

# Of what a command prints, which may print to the end: cut off, it would fail.
first_line() {
  local text
  text=$("$@" 2>/dev/null) || return
  printf '%s' "${text%%$'\n'*}"
}

# The version of a tool in one line; 'none' where it is not used or not there.
tool_version() { # python | compiler | cmake | mpi | cuda
  local text=
  case $1 in
    python) text=$("${PYTHON:-python3}" -c 'import platform; print(platform.python_version())' 2>/dev/null) ;;
    compiler) text=$(first_line "$(site cxx)" --version) ;;
    cmake) text=$(first_line cmake --version) ;;
    mpi) if site_is mpi on; then text=$(mpi_version); fi ;;
    cuda)
      if [ "$KIND" = gpu ]; then
        text=$("$(site cuda_home)/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release .*, V//p')
      fi
      ;;
  esac || text=
  printf '%s' "${text:-none}"
}

# What mpi.h says: the library and its version.
mpi_version() {
  local text
  text=$(printf '#include <mpi.h>\n%s\n' \
    'gear_open OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION' \
    'gear_mpich MPICH_VERSION' 'gear_standard MPI_VERSION MPI_SUBVERSION' |
    "$(site mpicc)" -E -x c - 2>/dev/null) || return 1
  awk '
    /^gear_open [0-9]/ {print "Open MPI " $2 "." $3 "." $4; found = 1}
    /^gear_mpich "/ {gsub(/"/, ""); print "MPICH " $2; found = 1}
    /^gear_standard/ && !found {print "MPI " $2 "." $3}' <<<"$text"
}

# Makes `module` available, and loads the site's modules in order.
load_modules() {
  local name init
  init=$(site module_init)
  if ! dry && [ -n "$init" ] && [ ! -f "$init" ]; then
    fail "module_init = $init is no file" \
      "set it to the file that defines the command 'module', as in /usr/share/modules/init/bash, or leave it out"
  fi
  # shellcheck disable=SC2046  # a list of names
  set -- $(site modules)
  [ $# -gt 0 ] || return 0
  if dry; then
    for name in "$@"; do printf '  %s\n' "$(quoted module load "$name")"; done
    return 0
  fi
  set +u # the initialisation of either module tool reads unset variables
  if ! command -v module >/dev/null; then
    for init in "$(site module_init)" "${MODULESHOME:-}/init/bash" "${LMOD_PKG:-}/init/bash" \
      /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash /etc/profile.d/modules.sh; do
      # shellcheck disable=SC1090  # the site's
      if [ -f "$init" ]; then . "$init" && break; fi
    done
  fi
  command -v module >/dev/null || fail "the site loads modules ($*), but there is no command 'module'" \
    "run the build in a login shell, or set module_init to the file that defines it, as in /usr/share/modules/init/bash"
  for name in "$@"; do
    module load "$name" 2>"$SCRATCH/module" || true
    # Some versions of either tool return 0 for a module that did not load.
    if ! module is-loaded "$name" 2>/dev/null; then
      fail "the site's module $name does not load: $(tr '\n' ' ' <"$SCRATCH/module")" \
        "module avail ${name%%/*} shows what is here; correct modules in the site file"
    fi
  done
  set -u
}
