#!/usr/bin/env bash
# generic.py on several ranks: run_generic.sh [RANKS] [OPTIONS...]; 2 ranks by default, and --help shows the options.
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" generic "$@"
