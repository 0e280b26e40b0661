#!/usr/bin/env bash
# Step modulefiles: what a user of the installation meets first: the module files (kept in the build
# until it is switched to), those of NCCL's profiles that it brings, extend-venv-activate,
# display-gpu-info.sh, the Slurm templates, and the example programs. Sourced by build.sh.
# shellcheck disable=SC2153  # variables of build.sh

modulefiles_step() {
  local name template values python profiles=
  python=$(tool_version python) # none: a dry run, where the site's is not
  values=("VERSION=$VERSION" "KIND=$KIND" "HOME=$HOME_LINK" "BUILD=$BUILD" "MODULES=$(site modules)"
    "PYTHON=$(readlink -f -- "$(command -v "$PYTHON")" || echo "$PYTHON")" "PYTHON_VERSION=${python%.*}")
  for name in $(site_presets); do values+=("ENV.$name=$(site "env.$name")"); done
  if [ "$KIND" = gpu ] && ! site_is nccl off; then
    profiles=share/gear/profiles
    for name in debug release; do
      render "gear-nccl-$name" "$profiles/gear-nccl/$name" "VERSION=$VERSION" "KIND=$KIND" "NCCL=$HOME_LINK/base/nccl"
    done
  fi
  render gear "share/gear/modulefiles/$NAME" "${values[@]}" "PROFILES=${profiles:+$HOME_LINK/$profiles}"
  run mkdir -p "$BUILD/slurm"
  for name in extend-venv-activate display-gpu-info.sh; do
    run install -m 755 "$SOURCE/$name" "$BUILD/bin/$name"
  done
  for template in "$SOURCE"/slurm/*; do
    install_template "$template" "$BUILD/slurm/${template##*/}"
  done
  install_examples examples/process_group
}

# The files of a folder; what Python has left beside them stays behind.
install_examples() { # folder below SOURCE
  local file mode
  run mkdir -p "$BUILD/$1"
  for file in "$SOURCE/$1"/*.py "$SOURCE/$1"/*.sh; do
    mode=644
    [ ! -x "$file" ] || mode=755
    run install -m "$mode" "$file" "$BUILD/$1/${file##*/}"
  done
}

# A source of modulefiles/, in both languages.
render() { # source, file in the build, values...
  local file=$BUILD/$2
  run mkdir -p "${file%/*}"
  run "$PYTHON" "$SOURCE/modulefiles/render.py" --source "$SOURCE/modulefiles/$1.module" tcl --output "$file" "${@:3}"
  run "$PYTHON" "$SOURCE/modulefiles/render.py" --source "$SOURCE/modulefiles/$1.module" lua --output "$file.lua" "${@:3}"
}

# The templates say `module load gear` where they stand; installed, they name this very version, as what a
# job runs must not change while it waits in the queue, and where its module file is.
install_template() { # from to
  local mode=644
  [ ! -x "$1" ] || mode=755
  run install -m "$mode" "$1" "$2"
  grep -q '^ *module load gear$' "$1" || return 0
  run sed -i "s|^\\( *\\)module load gear\$|\\1module use --append $PREFIX/modulefiles\\n\\1module load gear/$NAME|" "$2"
  dry || grep -q "^ *module load gear/$NAME\$" "$2" || fail "$2 does not name the module that it loads"
}
