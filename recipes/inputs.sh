#!/usr/bin/env bash
# The hashes of everything that determines an installation. Its two layers are folders named by them, so
# that the same inputs are never built twice and different ones never share a folder. Sourced by build.sh.
# shellcheck disable=SC2154  # base_steps is build.sh's

# --- what pyproject.toml says

# Its text of KEY, `key = "text"`.
project() { sed -n "s/^$1 = \"\\([^\"]*\\)\"\$/\\1/p" "$SOURCE/pyproject.toml" | head -n 1; }

# The requirements in a list of it, those of the extras that a requirement names among them.
requirements_of() { # dependencies | extra
  local requirement name extra
  name=$(project name)
  awk -F '"' -v start="$1 = [" '
    index($0, start) == 1 {inside = 1}
    inside {sub(/#.*/, ""); for (i = 2; i <= NF; i += 2) print $i}
    inside && /\][[:space:]]*$/ {exit}' "$SOURCE/pyproject.toml" |
    while read -r requirement; do
      case $requirement in
        "$name"\[*\])
          requirement=${requirement#*\[}
          for extra in $(tr ',]' '  ' <<<"$requirement"); do requirements_of "$extra"; done
          ;;
        *) printf '%s\n' "$requirement" ;;
      esac
    done
}

# What GEAR needs, one requirement a line. Without torch there is nothing to train with, and the rest of
# GEAR does not need it.
gear_requirements() {
  requirements_of dependencies
  if site_is torch off; then requirements_of cli; else requirements_of train; fi
}

# The pinned versions, with the torch of the site and what was made for it, and without what developers alone have.
# What the environment has that this stands on is taken as it is there, if GEAR's requirements allow it.
pinned_versions() {
  local tools
  tools=$(requirements_of dev | sed 's/[^A-Za-z0-9._-].*//' | paste -s -d '|')
  {
    grep -vE "^($tools)==" "$SOURCE/requirements/constraints.txt"
    cat "$SOURCE/requirements/site.txt"
  } | grep -vE '^(#|$|torch==)' | LC_ALL=C sort -u |
    awk -F == -v given="$(given_versions | sed 's/==.*//' | xargs)" '
      BEGIN {split(given, names, " "); for (i in names) there[names[i]]}
      !($1 in there)'
  torch_requirements
}

# What an installation sees of the environment that it stands on, sorted, `name==version` a line; nothing where
# there is none.
given_versions() {
  if [ -z "$(site stand_on)" ] || [ ! -x "$(site stand_on)/bin/python" ]; then return 0; fi
  "$(site stand_on)/bin/python" "$SOURCE/recipes/stand_on.py" --versions "$(site stand_on)"
}

# --- the hashes

hash_files() { xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1; } # names, each ended by a null

# Files below SOURCE that a build reads; what other builds have left among them is not source.
source_files() {
  find gear process_group/{src,python,CMakeLists.txt} csrc cmake CMakeLists.txt pyproject.toml requirements recipes modulefiles slurm examples tools/c10d.sh \
    extend-venv-activate display-gpu-info.sh \
    \( -path recipes/sites -o -path recipes/containers -o -path recipes/spack -o -path recipes/easybuild -o \
    -path recipes/conda -o -name README.md -o -name __pycache__ \) -prune -o \
    -type f ! -name '*.so' ! -name '*.pyc' -print0 | LC_ALL=C sort -z
}

source_hash() { (cd "$SOURCE" && source_files | hash_files); }

# Of the pins, of how the base is made, of the site's values that it depends on, and of the tools that were
# found.
base_hash() {
  local tool
  {
    pinned_versions
    given_versions
    gear_requirements
    (cd "$SOURCE/recipes/steps" && printf '%s.sh\0' "${base_steps[@]}" | hash_files)
    (cd "$SOURCE/recipes" &&
      find pip.sh wheels.sh nccl.sh stand_on.py patches sources -type f -print0 | LC_ALL=C sort -z | hash_files)
    site_inputs base
    printf 'python %s\n' "$PYTHON"
    for tool in python compiler mpi cuda; do printf '%s %s\n' "$tool" "$(tool_version "$tool")"; done
  } | sha256sum | cut -c 1-12
}

# Of the base, the sources, and all of the site's values.
build_hash() {
  {
    printf '%s\n' "$BASE_NAME"
    source_hash
    site_inputs build
  } | sha256sum | cut -c 1-12
}
