#!/usr/bin/env bash
# Step core: GEAR itself, compiled for the site's GPUs and MPI, in an environment of its own that stands
# on the base. Sourced by build.sh.
# shellcheck disable=SC2153  # SOURCE is build.sh's

# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

core_step() {
  local options
  mapfile -t options < <(core_options)
  record_option core "${options[@]}"
  run rm -rf "$LAYER/bin" "$LAYER/lib" "$LAYER/lib64" "$LAYER/include" "$LAYER/pyvenv.cfg" "$RECORD/pip"
  run "$PYTHON" -m venv --without-pip "$LAYER" || fail "the environment could not be made with $PYTHON"
  run "$LAYER/bin/python" "$SOURCE/recipes/stand_on.py" "$BASE" ||
    fail "the environment could not be made to stand on $BASE"
  wheel_of gear make_core "$(core_sources_hash "${core_files[@]}")" "${options[@]}" "$(mpi_compiler_says)"
  pip install --no-deps "$WHEEL" || fail "GEAR was built, but could not be installed"
  run "$LAYER/bin/python" "$SOURCE/recipes/smoke/check_gear.py" || fail "GEAR was installed, but does not work"
}

core_options() {
  if [ "$KIND" = gpu ]; then
    echo GEAR_WITH_CUDA=ON
    echo "GEAR_CUDA_ARCHITECTURES=$(site cuda_architectures)"
    echo "CMAKE_CUDA_COMPILER=$(site cuda_home)/bin/nvcc"
  else
    echo GEAR_WITH_CUDA=OFF
  fi
  if site_is mpi on; then
    echo GEAR_WITH_MPI=ON
    echo "MPI_CXX_COMPILER=$(command -v "$(site mpicxx)" || site mpicxx)"
  else
    echo GEAR_WITH_MPI=OFF
  fi
  echo "GEAR_WITH_VERBS=$(site verbs | tr '[:lower:]' '[:upper:]')"
  echo "GEAR_WITH_FABRIC=$(site fabric | tr '[:lower:]' '[:upper:]')"
}

compiled_files=(csrc cmake CMakeLists.txt pyproject.toml)
core_files=("${compiled_files[@]}" gear process_group/python README.md LICENSE)

core_sources_hash() { # file or folder...
  (cd "$SOURCE" && find "$@" -type f ! -name '*.so' ! -name '*.pyc' -print0 | LC_ALL=C sort -z | hash_files)
}

# From a copy: nothing is written into the source, and nothing that other builds left there gets in. Where
# nothing that is compiled has changed, what was compiled last is used again; it is kept beside the wheels.
make_core() { # folder
  local place=$CACHE/gear-compiled-$KIND key option options=(--config-settings cmake.define.GEAR_HEADERS_ONCE=ON)
  while read -r option; do options+=(--config-settings "cmake.define.$option"); done < <(core_options)
  key=$(core_sources_hash "${compiled_files[@]}")$(core_options | sha256sum)${BASE##*/}$(tool_version compiler)
  if ! dry && ! lock_compiled "$place"; then place=$LAYER/work/gear; fi
  if [ "$(cat "$place/key" 2>/dev/null)" != "$key" ]; then
    run rm -rf "$place/key" "$place/source" "$place/build"
    run mkdir -p "$place/source"
    run cp -R "${compiled_files[@]/#/$SOURCE/}" "$place/source/"
    dry || printf '%s\n' "$key" >"$place/key"
  fi
  run rm -rf "$place/source/gear" "$place/source/process_group"
  run mkdir -p "$place/source/process_group"
  run cp -R "$SOURCE/gear" "$SOURCE/README.md" "$SOURCE/LICENSE" "$place/source/"
  run cp -R "$SOURCE/process_group/python" "$place/source/process_group/"
  run find "$place/source/gear" "$place/source/process_group" "(" -name "*.so" -o -name "*.pyc" ")" -delete
  build_wheel "$1" "$place/source" --config-settings "build-dir=$place/build" "${options[@]}" ||
    fail "GEAR could not be compiled" "the log has what CMake and the compiler said"
}

# One build at a time may compile there; the lock goes with the step.
lock_compiled() { # folder
  { mkdir -p "$1" && : >>"$1/lock" && exec 8>>"$1/lock" && flock -n 8; } 2>/dev/null
}
