#!/usr/bin/env bash
# Puts a finished build in its place, and takes an installation away. Sourced by build.sh.
#
#   PREFIX/gear/NAME                    GEAR_HOME, a link to .builds/NAME-HASH; NAME is <version>-<kind>
#   PREFIX/gear/.builds/NAME-HASH       the build: a venv with GEAR, made where it stays; `base` in it leads to
#   PREFIX/gear/.builds/base-KIND-HASH  what it stands on: a venv with all else, for one or more builds
#   PREFIX/gear/.builds/.NAME.previous  which build it replaced: running jobs finish on that one
#   PREFIX/modulefiles/gear/NAME        Tcl; NAME.lua beside it, and .version with the default
# shellcheck disable=SC2153  # variables of build.sh

# Everything of a finished build is in its place.
installed() {
  [ "$(readlink "$HOME_LINK" 2>/dev/null)" = ".builds/$BUILD_NAME" ] || return 1
  [ -f "$BUILD/share/gear/manifest.json" ] || return 1
  base_is_whole || return 1
  cmp -s "$BUILD/share/gear/modulefiles/$NAME" "$MODULE_DIR/$NAME" || return 1
  cmp -s "$BUILD/share/gear/modulefiles/$NAME.lua" "$MODULE_DIR/$NAME.lua" || return 1
  [ -f "$MODULE_DIR/.version" ] || site_is default_module off
}

# Each thing is made beside its place and moved there in one rename: who loads the module meanwhile gets
# the previous build or this one, whole. All are made before the first is moved, so that what cannot be
# written changes nothing. Interrupted, it is completed by the next run.
switch_to_build() {
  local suffix previous
  say "switching gear/$NAME to this build"
  if dry; then return 0; fi
  previous=$(readlink "$HOME_LINK") || previous=
  mkdir -p "$MODULE_DIR" 2>"$SCRATCH/error" || cannot_write "$MODULE_DIR"
  for suffix in "" .lua; do
    [ ! -d "$MODULE_DIR/$NAME$suffix" ] || cannot_write "$MODULE_DIR/$NAME$suffix" "it is a folder"
    cp -T "$BUILD/share/gear/modulefiles/$NAME$suffix" "$MODULE_DIR/.$NAME$suffix.tmp" 2>"$SCRATCH/error" ||
      cannot_write "$MODULE_DIR/$NAME$suffix"
  done
  if site_is default_module on; then make_default "$NAME"; fi
  [ -L "$HOME_LINK" ] || [ ! -d "$HOME_LINK" ] || cannot_write "$HOME_LINK" "it is a folder"
  { printf '%s\n' "$previous" >"$PREVIOUS.tmp"; } 2>"$SCRATCH/error" || cannot_write "$PREVIOUS"
  ln -sfnT ".builds/$BUILD_NAME" "$PREFIX/gear/.$NAME.tmp" 2>"$SCRATCH/error" || cannot_write "$HOME_LINK"

  if [ "$previous" != ".builds/$BUILD_NAME" ]; then mv -fT "$PREVIOUS.tmp" "$PREVIOUS"; fi
  mv -fT "$PREFIX/gear/.$NAME.tmp" "$HOME_LINK"
  for suffix in "" .lua; do mv -fT "$MODULE_DIR/.$NAME$suffix.tmp" "$MODULE_DIR/$NAME$suffix"; done
  if site_is default_module on; then mv -fT "$MODULE_DIR/.version.tmp" "$MODULE_DIR/.version"; fi
  remove_temporaries
  remove_old_builds
}

# Without a reason, that of the command which has just failed.
cannot_write() { # place [reason]
  local reason=${2-}
  [ -n "$reason" ] || reason=$(sed 's/^.*: //' "$SCRATCH/error" | tail -n 1)
  remove_temporaries
  fail "$1 cannot be written: $reason" "correct that, then repeat the command; nothing that was installed has changed"
}

remove_temporaries() {
  rm -f "$PREVIOUS.tmp" "$PREFIX/gear/.$NAME.tmp" "$MODULE_DIR/.$NAME.tmp" "$MODULE_DIR/.$NAME.lua.tmp" \
    "$MODULE_DIR/.version.tmp" 2>/dev/null || true
}

make_default() { # name
  [ ! -d "$MODULE_DIR/.version" ] || cannot_write "$MODULE_DIR/.version" "it is a folder"
  { printf '#%%Module1.0\nset ModulesVersion "%s"\n' "$1" >"$MODULE_DIR/.version.tmp"; } 2>"$SCRATCH/error" ||
    cannot_write "$MODULE_DIR/.version"
}

set_default() { # name
  make_default "$1"
  mv -fT "$MODULE_DIR/.version.tmp" "$MODULE_DIR/.version"
}

# Keeps this build, the one that it replaced and those that something here still runs on, with what they
# stand on.
remove_old_builds() {
  local build previous bases processes
  [ -f "$PREVIOUS" ] || return 0 # somebody removed it: which build jobs may be running in is not known
  previous=$(cat "$PREVIOUS")
  for build in "$PREFIX/gear/.builds/$NAME"-*; do
    case .builds/${build##*/} in
      ".builds/$BUILD_NAME" | "$previous") ;;
      *)
        processes=$(processes_on "$build")
        if [ -z "$processes" ]; then
          rm -rf "$build"
        elif [ -d "$build" ]; then
          say "${build##*/} stays until the next update: processes use it: $processes"
        fi
        ;;
    esac
  done
  mapfile -t bases < <(unused_bases)
  rm -rf "${bases[@]}"
}

# The bases that no build stands on, finished or not; what is named NAME-* counts for none.
unused_bases() { # [NAME]
  local base build
  for base in "$PREFIX"/gear/.builds/base-*; do
    [ -d "$base" ] || continue
    for build in "$PREFIX"/gear/.builds/*/; do
      build=${build%/}
      if [ -n "${1-}" ] && [[ ${build##*/} == "$1"-* ]]; then continue; fi
      if [ "$(readlink "$build/base")" = "../${base##*/}" ]; then continue 2; fi
    done
    printf '%s\n' "$base"
  done
}

# Removes this version and kind, and nothing else; folders that are empty then go as well. While something
# here runs on it, only the module files go.
uninstall() {
  local found=() bases path other processes=''
  for path in "$HOME_LINK" "$MODULE_DIR/$NAME" "$MODULE_DIR/$NAME.lua" "$PREFIX/gear/.builds/$NAME"-*; do
    if [ -e "$path" ] || [ -L "$path" ]; then found+=("$path"); fi
  done
  if [ ${#found[@]} = 0 ]; then
    say "nothing to do: gear/$NAME is not installed in $PREFIX"
    return 0
  fi
  # Module files first: nobody loads what is going.
  if [ "$(default_name)" = "$NAME" ]; then
    other=$(other_names | tail -n 1)
    if dry; then
      say "the default module becomes: ${other:-none}"
    elif [ -n "$other" ]; then
      set_default "$other"
      say "the default module is gear/$other"
    else
      rm -f "$MODULE_DIR/.version"
    fi
  fi
  removed rm -f "$MODULE_DIR/$NAME" "$MODULE_DIR/$NAME.lua"
  for path in "$PREFIX/gear/.builds/$NAME"-*; do
    processes+=$(processes_on "$path")
  done
  if [ -n "$processes" ]; then
    fail "gear/$NAME cannot be loaded any more, but its files stay: processes of this node use it: $processes" \
      "repeat the command when they have ended"
  fi
  removed rm -f "$HOME_LINK"
  mapfile -t bases < <(unused_bases "$NAME")
  for path in "$PREFIX/gear/.builds/$NAME"-* "${bases[@]}"; do
    if [ -d "$path" ]; then removed rm -rf "$path"; fi
  done
  if dry; then return 0; fi
  remove_temporaries
  rm -f "$PREVIOUS"
  # The lock is that of all versions here.
  if [ -z "$(find "$PREFIX/gear/.builds" -mindepth 1 ! -name .lock -print -quit 2>/dev/null)" ]; then
    rm -f "$PREFIX/gear/.builds/.lock"
  fi
  rmdir --ignore-fail-on-non-empty "$MODULE_DIR" "$PREFIX/modulefiles" "$PREFIX/gear/.builds" \
    "$PREFIX/gear" 2>/dev/null || true
  say "gear/$NAME is removed from $PREFIX; jobs on other nodes that use it fail, and a shell that has it loaded cannot unload it any more: log in anew"
}

removed() { # rm command
  if dry; then printf '  %s\n' "$(quoted "$@")"; else "$@"; fi
}

default_name() { sed -n 's/^set ModulesVersion "\(.*\)"$/\1/p' "$MODULE_DIR/.version" 2>/dev/null || true; }

# The other installed versions, the one to prefer last: the newest, and of one version the GPU build.
other_names() {
  find "$MODULE_DIR" -maxdepth 1 -type f -name '[0-9]*' ! -name '*.lua' ! -name "$NAME" -printf '%f\n' \
    2>/dev/null | LC_ALL=C sort -V
}
