#!/usr/bin/env bash
# Every collective as process_group/tests/worker.py plays it, on four ranks, with gear_mpi._c10d under ASan and
# UBSan. By hand, as compiling it takes six minutes of CPU time; needs g++, and an mpicxx and mpirun.
#
#   process_group/tests/sanitized.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$PWD/.venv/bin/python
to=$PWD/build/c10d/sanitized
tools/c10d.sh --sanitize=address,undefined --to="$to" --tests
# The ranks alone are watched: what is loaded first must be the sanitizer's library.
watched=(env "LD_PRELOAD=$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" "GEAR_C10D=$to"
  ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=99 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  OMP_NUM_THREADS=1)
options=()
if mpirun --version | grep -q 'Open MPI'; then options=(--allow-run-as-root --oversubscribe --bind-to none); fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mpirun "${options[@]}" -n 4 "${watched[@]}" "$python" process_group/tests/worker.py "$folder"
"$python" - "$folder" <<'PYTHON'
import json, pathlib, sys
files = list(pathlib.Path(sys.argv[1]).glob("*.json"))
assert len(files) == 4, files
wrong = {f"rank {file.stem}, {case}": said for file in files
         for case, said in json.loads(file.read_text()).items() if said}
for where, said in wrong.items():
    print(where, said, sep="\n")
print("process group under ASan and UBSan:", "FAILED" if wrong else "clean")
sys.exit(bool(wrong))
PYTHON
