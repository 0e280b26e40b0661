#!/usr/bin/env bash
# The hash of everything that determines an installation: its builds are named by it, so that the same
# inputs are never built twice and different ones never share a folder. Sourced by build.sh.

# Files below SOURCE that a build reads; what other builds have left among them is not source.
source_files() {
  find gear csrc cmake CMakeLists.txt pyproject.toml requirements recipes modulefiles slurm \
    extend-venv-activate \( -path recipes/sites -o -name __pycache__ \) -prune -o \
    -type f ! -name '*.so' ! -name '*.pyc' -print0 | LC_ALL=C sort -z
}

source_hash() { (cd "$SOURCE" && source_files | xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1); }

# Of the sources, the site's values, and the tools that were found.
inputs_hash() {
  local tool
  {
    source_hash
    site_inputs
    printf 'python %s\n' "$PYTHON"
    for tool in python compiler mpi cuda; do printf '%s %s\n' "$tool" "$(tool_version "$tool")"; done
  } | sha256sum | cut -c 1-12
}

# The version in pyproject.toml.
source_version() { sed -n 's/^version = "\([^"]*\)"$/\1/p' "$SOURCE/pyproject.toml" | head -n 1; }
