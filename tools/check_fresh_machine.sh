#!/usr/bin/env bash
# `make demo` for somebody who has just cloned GEAR, on a machine where pip has never built anything: a
# copy of the files that git knows or would, an empty HOME, and next to no environment. Exit 1 unless the
# demo draws its learning curve and has learned. PYTHON chooses the interpreter (tools/find_python.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

least_return=-300 # Pendulum: random play has -1200, what has learned -150
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home" "$work/gear" "$work/tmp"
git ls-files -z --cached --others --exclude-standard --deduplicate |
  tar --create --null --files-from=- --ignore-failed-read 2>/dev/null | tar --extract -C "$work/gear"

fresh=(
  HOME="$work/home" TMPDIR="$work/tmp" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  CCACHE_DISABLE=1 LC_ALL=C.UTF-8
)
if python=$(tools/find_python.sh); then fresh+=(PYTHON="$python"); fi
# Where packages come from, and what the way there needs, is a matter of the machine. What pip keeps, and
# how it builds and installs, is not passed on.
for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_CERT PIP_CLIENT_CERT \
  PIP_PROXY PIP_DEFAULT_TIMEOUT PIP_RETRIES SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE \
  http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  if [ -n "${!name:-}" ]; then fresh+=("$name=${!name}"); fi
done

cd "$work/gear"
started=$SECONDS
env -i "${fresh[@]}" make demo </dev/null 2>&1 | tee "$work/log"
seconds=$((SECONDS - started))

setup=$(sed -n 's/^setup: done in //p' "$work/log")
# shellcheck disable=SC2016  # a program, not text to expand
.venv/bin/python -c '
import json, pathlib, platform, sys
least, setup, seconds = sys.argv[1:]
(run,) = {path.parent for path in pathlib.Path("outputs").rglob("summary.json")}
curve, found = run / "learning_curve.png", json.loads((run / "summary.json").read_text())
if curve.read_bytes()[:4] != b"\x89PNG":
    sys.exit(f"fresh machine: {curve} is no picture")
learned = found["final_return"]
for name, value in {"return": learned, "greedy return": found["eval_return"]}.items():
    if not value >= float(least):
        sys.exit(f"fresh machine: the demo ended at a {name} of {value:.0f}, below {least}")
print(f"fresh machine: Python {platform.python_version()}: `make demo` took {seconds} s, "
      f"{setup} of them to set up; its last return is {learned:.0f}")
' "$least_return" "$setup" "$seconds"
