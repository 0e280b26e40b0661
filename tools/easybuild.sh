#!/usr/bin/env bash
# Puts EasyBuild into a venv of its own, for tests of recipes/easybuild: build/easybuild.
#
#   tools/easybuild.sh
#
# Prints its folder bin, which has to be first on PATH where `eb` runs; at once if it was there before. Needs a
# python3 and the package index that pip is configured for.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$PWD/build/easybuild
packages=(easybuild==5.4.1 easybuild-framework==5.4.1 easybuild-easyblocks==5.4.1 easybuild-easyconfigs==5.4.1
  pycodestyle==2.14.0)

here() { [ "$(cat "$venv/stamp" 2>/dev/null)" = "$venv ${packages[*]}" ] && "$venv/bin/python" -c 'import easybuild.framework'; }

mkdir -p build
exec 9>build/easybuild.lock
flock 9
if ! here; then
  python=$(tools/find_python.sh) || { echo "easybuild: no suitable Python found" >&2; exit 1; }
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" --disable-pip-version-check -qq install "${packages[@]}" ||
    { echo "easybuild: pip could not install ${packages[*]}" >&2; exit 1; }
  echo "$venv ${packages[*]}" >"$venv/stamp"
fi
echo "$venv/bin"
