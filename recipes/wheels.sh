#!/usr/bin/env bash
# Wheels that are built here from source, and kept for later builds in CACHE under a hash of all that
# determines them. Sourced by the steps that need one.
# shellcheck disable=SC2034,SC2153  # WHEEL is for the steps; SOURCE is build.sh's

# Sets WHEEL to a wheel of NAME, kept from an earlier build or made now by `MAKE FOLDER`, which leaves
# one in FOLDER. The remaining arguments are what determines it besides the machine and the recipe.
wheel_of() { # name make determinant...
  local name=$1 make=$2 work=$LAYER/work/$1 kept
  shift 2
  if dry; then
    "$make" "$work/wheel"
    WHEEL="$work/wheel/*.whl"
    return
  fi
  kept=$CACHE/$name-$(wheel_key "$name" "$@")
  if whole "$kept"; then
    say "  $name: the wheel of an earlier build, $kept"
  else
    say "  $name: building it"
    rm -rf "$work"
    mkdir -p "$work/wheel"
    "$make" "$work/wheel"
    (cd "$work/wheel" && sha256sum -- *.whl >SHA256)
    keep_wheel "$work/wheel" "$kept" || {
      say "  $name: its wheel is not kept for later builds: $CACHE cannot be written"
      kept=$work/wheel
    }
  fi
  for WHEEL in "$kept"/*.whl; do :; done
}

whole() { (cd "$1" 2>/dev/null && sha256sum --check --status SHA256 2>/dev/null); } # folder

# In one rename, so that two builds at once, or one that is killed, leave a whole wheel or none.
keep_wheel() { # folder destination
  local beside=$2.$$
  {
    mkdir -p "$CACHE" && cp -R "$1" "$beside" || return 1
    whole "$2" || rm -rf "$2"
    mv -T "$beside" "$2" || rm -rf "$beside"
  } 2>>"$LOG"
  whole "$2"
}

wheel_key() { # name determinant...
  local name=$1 tool flags
  shift
  {
    printf '%s\n' "$@"
    for tool in python compiler mpi cuda; do tool_version "$tool"; done
    for flags in CPPFLAGS CFLAGS CXXFLAGS LDFLAGS; do
      if [ -n "${!flags-}" ]; then echo "$flags=${!flags}"; fi
    done
    "$LAYER/bin/python" -c 'import sys, sysconfig; print(sys.version, sysconfig.get_platform())'
    (cd "$SOURCE/recipes" && find "steps/$STEP.sh" patches sources \
      \( -name "$name*" -o -name "$STEP.sh" \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
  } | sha256sum | cut -c 1-16
}

# The version of a package in the build's environment, without importing it.
installed_version() { # name
  "$LAYER/bin/python" -c 'import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))' "$1"
}

# Unpacks the source distribution that recipes/sources/NAME.txt pins into $LAYER/work/NAME/source, with
# our patches for it.
unpack_source() { # name
  local name=$1 work=$LAYER/work/$1 patch
  pip download --no-deps --no-binary :all: --no-build-isolation --dest "$work" \
    --requirement "$SOURCE/recipes/sources/$name.txt" ||
    fail "pip could not fetch the source of $name" "put $(source_pin "$name") into the wheelhouse, if the site file names one"
  run mkdir -p "$work/source"
  run tar -xzf "$work/$(source_pin "$name" | tr -s = -).tar.gz" -C "$work/source" --strip-components 1 ||
    fail "the source of $name could not be unpacked" "set TMPDIR or --prefix to where there is room"
  for patch in "$SOURCE/recipes/patches/$name"-*.patch; do
    [ -e "$patch" ] || continue
    run patch --directory "$work/source" --strip 1 --forward --fuzz 0 --no-backup-if-mismatch --input "$patch" ||
      fail "recipes/patches/${patch##*/} does not apply to $(source_pin "$name")" \
        "the patches belong to that version: leave recipes/sources/$name.txt and recipes/patches as they came"
  done
}

# For the manifest: what was built from where, with which patches.
record_source() { # name
  local name=$1 patch
  record_package "$name" "$(source_pin "$name" | cut -d = -f 3)" "$(source_sha256 "$name")" sdist
  for patch in "$SOURCE/recipes/patches/$name"-*.patch; do
    if [ -e "$patch" ]; then record_patch "${patch##*/}"; fi
  done
}

source_pin() { cut -d ' ' -f 1 "$SOURCE/recipes/sources/$1.txt"; }
source_sha256() { sed 's/.*sha256://' "$SOURCE/recipes/sources/$1.txt"; }

# Makes a wheel of an unpacked source: nothing is fetched for it, and what the environment says to other
# builds of these packages does not get in.
build_wheel() { # folder-of-wheel source [NAME=value...] [pip option...]
  local folder=$1 source=$2 name environment=()
  shift 2
  for name in "${!HOROVOD_@}" "${!DS_@}" "${!MPI4PY_@}" "${!SKBUILD_@}" "${!GEAR_WITH_@}"; do
    environment+=(-u "$name")
  done
  environment+=(-u CMAKE_ARGS -u CCL_ROOT -u TORCH_CUDA_ARCH_LIST)
  while [ $# -gt 0 ] && [[ $1 == [A-Z]*=* ]]; do
    environment+=("$1")
    shift
  done
  run env "${environment[@]}" "$LAYER/bin/python" -m pip --disable-pip-version-check wheel --verbose \
    --no-build-isolation --no-deps --no-index --no-cache-dir --wheel-dir "$folder" "$@" "$source"
}

# What the MPI's compiler wrapper calls, with the folders of its libraries.
mpi_compiler_says() {
  if dry || site_is mpi off; then return; fi
  command -v "$(site mpicxx)"
  "$(site mpicxx)" -show
}
