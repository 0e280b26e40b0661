#!/usr/bin/env bash
# Puts Environment Modules or Lmod beside the other one, for tests: Debian's packages exclude each
# other, so this one is unpacked into build/module-tools/, its paths rewritten. Needs no root.
#
#   tools/unpack_module_tool.sh modules|lmod
#
# Exit 0 if it is there and runs, at once if it was there before. tests/distribution/shells.py reads
# the same places.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
  modules)
    package=environment-modules init=usr/share/modules/init
    paths='/usr/share/modules|/etc/environment-modules|/usr/lib/[^/]*/modulecmd[.]tcl' ;;
  lmod)
    package=lmod init=usr/share/lmod/lmod/init
    paths='/usr/(share|lib)/lmod|/etc/lmod' ;;
  *) echo "unpack_module_tool: which tool: '${1:-}', allowed: modules, lmod" >&2; exit 2 ;;
esac
root=$PWD/build/module-tools/$1

here() { grep -qsF "$root/" "$root/$init/bash"; } # false too where the repository has moved
# `module` returns 0 also where its interpreter is missing, so what it does is looked at.
runs() {
  # shellcheck disable=SC2016  # expanded by the inner shell
  env -u MODULEPATH bash --noprofile --norc -c \
    'source "$1/bash" && module use "$1" && [[ :$MODULEPATH: == *:"$1":* ]]' _ "$root/$init"
}

if here; then exit 0; fi
download=$(mktemp -d)
trap 'rm -rf "$download"' EXIT
chmod a+rwx "$download" # apt downloads as a user of its own
(cd "$download" && apt-get -qq download "$package")
rm -rf "$root"
mkdir -p "$root"
dpkg --extract "$download/$package"_*.deb "$root"
grep -rIlE "$paths" "$root" | xargs -d '\n' sed -i -E "s#($paths)#$root&#g"
runs || { rm -rf "$root"; echo "unpack_module_tool: $package does not run here" >&2; exit 1; }
