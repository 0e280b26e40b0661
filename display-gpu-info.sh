#!/usr/bin/env bash
# The GPUs of this node and who runs what on them; in a job, once a node:
#
#   srun --ntasks-per-node=1 display-gpu-info.sh [--user [NAME]] [--watch] [--json]
#
# `gear gpu ps --help` says what its words mean.
set -euo pipefail

case " $* " in
  *" --json "* | *" --watch "*) ;; # the answer alone
  *) gear gpu query ;;
esac
exec gear gpu ps "$@"
