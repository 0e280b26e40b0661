#!/usr/bin/env bash
# mnist.py on several ranks: run_mnist.sh [RANKS] [OPTIONS...]; 2 ranks by default, and --help shows the options.
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" mnist "$@"
