#!/bin/sh
# One rank of `gear run`: rank.sh LOGS VARIABLES COMMAND...
#
# VARIABLES: those that may hold its number, as the launcher sets them. What COMMAND writes goes to
# LOGS/rank-N.log, and its exit code, when it has ended, to LOGS/rank-N.code.
logs=$1
variables=$2
shift 2
rank=
for variable in $variables; do
  eval "rank=\${$variable-}"
  [ -z "$rank" ] || break
done
if [ -z "$rank" ]; then
  echo "gear run: none of $variables is set: the launcher has not said which rank this is" >&2
  exit 2
fi
"$@" >"$logs/rank-$rank.log" 2>&1
code=$?
echo "$code" >"$logs/rank-$rank.part" && mv "$logs/rank-$rank.part" "$logs/rank-$rank.code"
exit "$code"
