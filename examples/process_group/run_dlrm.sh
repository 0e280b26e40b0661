#!/usr/bin/env bash
# dlrm.py on several ranks: run_dlrm.sh [RANKS] [OPTIONS...]; 2 ranks by default, and --help shows the options.
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" dlrm "$@"
