#!/usr/bin/env bash
# Runs a command with a nice value that counts against other sessions, too:
#
#   setsid tools/nice.sh NICE COMMAND...
#
# Linux shares the cores among sessions first, and nice counts inside of one alone (sched(7), "autogroup"). So the
# session that setsid made gets the value as well, where the kernel has such groups and allows it.
set -euo pipefail
echo "$1" 2>/dev/null >/proc/self/autogroup || true
exec nice -n "$1" "${@:2}"
