#!/usr/bin/env bash
# The first stage of an image: installs GEAR in /opt/gear as on a site, and beside it what the second stage needs.
#
#   recipes/containers/install.sh SITE [--dry-run]
#
#   SITE        a site file (recipes/sites)
#   --dry-run   print the commands and change nothing
#
# For root on Debian 12, Ubuntu 24.04 or later. /opt/gear is copied to the image; the rest of this stage is not.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
packages=(g++ libfabric-dev libibverbs-dev libopenmpi-dev make openmpi-bin patch python3 python3-dev python3-venv)
packages+=(ca-certificates) # for pip

if [ $# = 0 ] || [ $# -gt 2 ] || [ "${2:---dry-run}" != --dry-run ]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
dry=${2:-}
run() { if [ -n "$dry" ]; then echo "$*"; else "$@"; fi; }

export DEBIAN_FRONTEND=noninteractive
run apt-get -qq update
run apt-get -qq install -y --no-install-recommends "${packages[@]}"
"$here/../build.sh" "$1" --prefix /opt/gear ${dry:+"$dry"}
run mkdir /opt/gear/container
run cp "$here/finish.sh" "$here/with-gear" /opt/gear/container/
