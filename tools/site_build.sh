#!/usr/bin/env bash
# The site build, as README says it, by somebody who has just cloned GEAR (tools/fresh_machine.sh): under umask
# 077, and with no package and no wheel kept from before. README's /opt/gear is build/site/prefix here, and HOME,
# with the wheels that were built, build/site/home. Where that is installed already, nothing is built.
#
#   tools/site_build.sh
set -euo pipefail
cd "$(dirname "$0")/.."
place=$PWD/build/site
mkdir -p "$place"
exec 9>"$place/lock"
flock 9

shown=$(python3 tools/documented.py of tools/site_build.sh)
[ "$(wc -l <<<"$shown")" = 1 ] || { echo "site build: the documents name not one but: $shown" >&2; exit 1; }
here=${shown//\/opt\/gear/$place\/prefix}
umask 077
# shellcheck disable=SC2086  # the words of a command
tools/fresh_machine.sh "$place" $here 9>&-
python3 tools/documented.py ran tools/site_build.sh "$shown" "$here"
