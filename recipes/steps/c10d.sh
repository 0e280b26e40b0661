#!/usr/bin/env bash
# Step c10d: what torch.distributed is given, compiled for the torch of the base, in the package gear_mpi: the process
# group gear_mpi, for the site's MPI, and gear_emu, which emulates ranks and needs no MPI. Sourced by build.sh.
# shellcheck disable=SC2153  # SOURCE is build.sh's

# shellcheck source=/dev/null
. "$SOURCE/recipes/wheels.sh"

c10d_files=(process_group/src process_group/CMakeLists.txt csrc/base csrc/memory/rooms.h csrc/mpi tools/c10d.sh pyproject.toml)

c10d_step() {
  local package
  package=$(c10d_package)
  run rm -rf "$package/c10d"
  dry || run mkdir "$package/c10d"
  install_c10d gear_emu "no MPI" --emulator
  if site_is mpi off; then return; fi
  record_option c10d "MPICXX=$(command -v "$(site mpicxx)" || site mpicxx)"
  install_c10d gear_mpi "$(dry || mpi_compiler_says)"
}

install_c10d() { # name its-MPI [option of tools/c10d.sh]
  local work=$LAYER/work/$1 kept
  if dry; then
    make_c10d "$work" "${@:3}"
    run cp -R "$work/lib/." "$package/c10d"
    return
  fi
  kept=$CACHE/gear-c10d-$(wheel_key c10d "$1" "$(c10d_sources_hash)" "torch $(installed_version torch)" "$2")
  if whole "$kept"; then
    say "  $1: the library of an earlier build, $kept"
  elif make_c10d "$work" "${@:3}"; then
    (cd "$work/lib" && sha256sum -- */* >SHA256)
    keep_wheel "$work/lib" "$kept" || kept=$work/lib
  elif site_is c10d on; then
    fail "$1 could not be compiled" "the log has what the compiler said; c10d = off in the site file leaves it out"
  else
    complain "  warning: $1 could not be compiled, and is left out; $LOG has what the compiler said"
    return 0
  fi
  run cp -R "$kept"/*/ "$package/c10d/" || fail "$1 was compiled, but could not be installed"
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
make_c10d() { # folder [option of tools/c10d.sh]
  local file
  run rm -rf "$1"
  for file in "${c10d_files[@]}"; do
    run mkdir -p "$1/source/$(dirname "$file")"
    run cp -R "$SOURCE/$file" "$1/source/$file"
  done
  run env "MPICXX=$(site mpicxx)" "PATH=$BASE/bin:$PATH" "$1/source/tools/c10d.sh" \
    "--python=$LAYER/bin/python" "--to=$1/lib" "${@:2}"
}
