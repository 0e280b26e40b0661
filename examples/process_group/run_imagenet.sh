#!/usr/bin/env bash
# imagenet.py on several ranks: run_imagenet.sh [RANKS] [OPTIONS...]; 2 ranks by default, and --help shows the options.
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" imagenet "$@"
