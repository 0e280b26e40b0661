#!/usr/bin/env bash
# The second stage of an image, which has /opt/gear from the first: installs what GEAR runs on, makes the user and
# the command with-gear, and checks as that user that all of it loads.
#
#   /opt/gear/container/finish.sh [--dry-run]      --dry-run: print the commands and change nothing
#
# For root on the same system as the first stage: the Python of /opt/gear is /usr/bin/python3.
set -euo pipefail
packages=(environment-modules ibverbs-providers iproute2 libfabric1 libibverbs1 openmpi-bin python3 python3-venv)
packages+=(ca-certificates) # for pip in a venv of a user

if [ $# -gt 1 ] || [ "${1:---dry-run}" != --dry-run ]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
dry=${1:-}
run() { if [ -n "$dry" ]; then echo "$*"; else "$@"; fi; }

export DEBIAN_FRONTEND=noninteractive
run apt-get -qq update
run apt-get -qq install -y --no-install-recommends "${packages[@]}"
run rm -rf /var/lib/apt/lists
run ln -s /opt/gear/container/with-gear /usr/local/bin/with-gear
run useradd --create-home --shell /bin/bash --uid 10001 gear # the Dockerfile names the number
run install --directory --owner gear --group gear /runs
user=(setpriv --reuid=gear --regid=gear --init-groups)
if [ -z "$dry" ] && ! "${user[@]}" true 2>/dev/null; then
  echo "finish: setpriv cannot become the user gear here: the check is run by $(id -un)"
  user=()
fi
run "${user[@]}" env HOME=/home/gear with-gear gear check --build
