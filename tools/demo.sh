#!/usr/bin/env bash
# `make demo`: venv, build, then SAC on Pendulum-v1 with GEAR replay. Arguments are overrides of
# the trainer's configuration, e.g. tools/demo.sh seed=1.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh train
.venv/bin/gear train "$@"
echo "(gear is .venv/bin/gear; 'source .venv/bin/activate' puts it on the PATH)"
