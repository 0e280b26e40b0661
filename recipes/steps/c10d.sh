#!/usr/bin/env bash
# Step c10d: the process group gear_mpi, compiled for the torch of the base and the site's MPI, in the package
# gear_mpi. Sourced by build.sh.
# shellcheck disable=SC2153  # SOURCE is build.sh's

# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

c10d_files=(process_group/src process_group/CMakeLists.txt csrc/base csrc/memory/rooms.h csrc/mpi tools/c10d.sh pyproject.toml)

c10d_step() {
  local work=$LAYER/work/c10d package kept
  package=$(c10d_package)
  record_option c10d "MPICXX=$(command -v "$(site mpicxx)" || site mpicxx)"
  run rm -rf "$package/c10d"
  if dry; then
    make_c10d "$work"
    run cp -R "$work/lib" "$package/c10d"
    return
  fi
  kept=$CACHE/gear-c10d-$(wheel_key c10d "$(c10d_sources_hash)" "torch $(installed_version torch)" "$(mpi_compiler_says)")
  if whole "$kept"; then
    say "  gear_mpi: the library of an earlier build, $kept"
  elif make_c10d "$work"; then
    (cd "$work/lib" && sha256sum -- */* >SHA256)
    keep_wheel "$work/lib" "$kept" || kept=$work/lib
  elif site_is c10d on; then
    fail "gear_mpi could not be compiled" "the log has what the compiler said; c10d = off in the site file leaves it out"
  else
    complain "  warning: gear_mpi could not be compiled, and is left out; $LOG has what the compiler said"
    return 0
  fi
  run mkdir "$package/c10d"
  run cp -R "$kept"/*/ "$package/c10d/" || fail "gear_mpi was compiled, but could not be installed"
}

# The folder of the package gear_mpi in the build. By the layer's place of packages: what `import gear` finds
# depends on where one stands.
c10d_package() {
  if dry; then
    printf '%s' "$LAYER/lib/python3/site-packages/gear_mpi"
  else
    "$LAYER/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib") + "/gear_mpi")'
  fi
}

c10d_sources_hash() {
  (cd "$SOURCE" && find "${c10d_files[@]}" -type f -print0 | LC_ALL=C sort -z | hash_files)
}

# From a copy: nothing is written into the source.
make_c10d() { # folder
  local file
  run rm -rf "$1"
  for file in "${c10d_files[@]}"; do
    run mkdir -p "$1/source/$(dirname "$file")"
    run cp -R "$SOURCE/$file" "$1/source/$file"
  done
  run env "MPICXX=$(site mpicxx)" "PATH=$BASE/bin:$PATH" "$1/source/tools/c10d.sh" \
    "--python=$LAYER/bin/python" "--to=$1/lib"
}
