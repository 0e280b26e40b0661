#!/usr/bin/env bash
# `make demo` for somebody who has just cloned GEAR (tools/fresh_machine.sh). Exit 1 unless the demo draws its
# learning curve and has learned. PYTHON chooses the interpreter (tools/find_python.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

ran() { (cd "$root" && python3 tools/documented.py ran tools/check_fresh_machine.sh "$1"); }
root=$PWD
least_return=-300 # Pendulum: random play has -1200, what has learned -150
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

started=$SECONDS
tools/fresh_machine.sh "$work" make demo 2>&1 | tee "$work/log"
seconds=$((SECONDS - started))
cd "$work/gear"

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
ran "make demo"

make clean >/dev/null
if [ -e .venv ] || [ -e build ]; then
  echo "fresh machine: make clean left .venv or build" >&2
  exit 1
fi
ran "make clean"
