#!/usr/bin/env bash
# Runs a command as somebody does who has just cloned GEAR, on a machine where pip has never built anything:
# in a copy of the files that git knows or would, with a HOME of its own, and next to no environment.
#
#   tools/fresh_machine.sh FOLDER COMMAND...
#
# FOLDER/gear is the copy, made anew; FOLDER/home is the HOME, empty unless an earlier call has left something
# there. PYTHON chooses the interpreter (tools/find_python.sh). The umask is the caller's.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
folder=$1
shift

(umask 022 && mkdir -p "$folder" "$folder/tmp" && chmod 1777 "$folder/tmp")
folder=$(cd "$folder" && pwd)
rm -rf "$folder/gear"
mkdir -p "$folder/gear" "$folder/home"
(cd "$source" && git ls-files -z --cached --others --exclude-standard --deduplicate |
  tar --create --null --files-from=- --ignore-failed-read 2>/dev/null) | tar --extract --no-same-permissions -C "$folder/gear"

fresh=(
  HOME="$folder/home" TMPDIR="$folder/tmp" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  CCACHE_DISABLE=1 LC_ALL=C.UTF-8
)
if python=$("$source/tools/find_python.sh"); then fresh+=(PYTHON="$python"); fi
# Where packages come from, and what the way there needs, is a matter of the machine. What pip keeps, and
# how it builds and installs, is not passed on.
for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_CERT PIP_CLIENT_CERT \
  PIP_PROXY PIP_DEFAULT_TIMEOUT PIP_RETRIES SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE \
  http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  if [ -n "${!name:-}" ]; then fresh+=("$name=${!name}"); fi
done
cd "$folder/gear"
exec env -i "${fresh[@]}" "$@" </dev/null
