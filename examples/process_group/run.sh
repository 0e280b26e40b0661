#!/usr/bin/env bash
# Starts one of these programs on several ranks, by `gear run`: srun in a job of Slurm, else mpirun, or
# torchrun where GEAR has no process group of its own.
#
#   run.sh PROGRAM [RANKS] [OPTIONS...]     generic, mnist, imagenet or dlrm; 2 ranks by default
#
# OPTIONS are the program's: --help shows them. --backend=gloo or nccl, if given, chooses the launcher, too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ $# = 0 ] || [ ! -f "$here/$1.py" ]; then
  sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
program=$1
shift
ranks=2
if [[ ${1-} =~ ^[0-9]+$ ]]; then
  ranks=$1
  shift
fi
launch=(gear run -n "$ranks")
for option in "$@"; do
  case $option in
    -h | --help) launch=(python) ;;
    --backend=*) launch+=("$option") ;;
  esac
done
command -v "${launch[0]}" >/dev/null || {
  echo "run.sh: there is no '${launch[0]}' on PATH: load GEAR's module, or activate the environment that has it" >&2
  exit 1
}
exec "${launch[@]}" "$here/$program.py" "$@"
