#!/usr/bin/env bash
# gear_mpi with tensors of GPUs: builds gear_mpi._c10d for the torch that is here, and checks every collective
# on two ranks (RANKS) that share the GPUs, against gloo. Offline.
#
#   tests/gpu/process_group.sh
#
# What it needs: nvidia-smi, g++, cmake, a $PYTHON (python3) with torch for CUDA, its headers and Python's,
# pybind11 and numpy; an MPI with mpirun and mpicxx. Where there is no mpicxx, MPI_INCLUDE names the folder
# of an mpi.h of the same MPI, and libmpi.so is found beside mpirun or by the loader. Exit 3: no MPI.
# It uses the package that tests/gpu/run.sh has built, or builds one without CUDA. Prints what there is,
# a line a check, and last the time of all_reduce beside what pinned copies take.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
work=$PWD/build/gpu
mkdir -p "$work/mpi"

nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader ||
  echo "nvidia-smi does not answer here"
"$python" -c 'import torch, torch.distributed as d
print("torch", torch.__version__, "NCCL" if d.is_nccl_available() else "without NCCL", torch.cuda.device_count(), "GPUs")'
command -v mpirun >/dev/null || { echo "process_group: no mpirun here: install an MPI" >&2; exit 3; }
mpirun --version | head -n 1

# A compiler of MPI programs made of g++ and an mpi.h, as FindMPI asks one.
if ! command -v "${MPICXX:-mpicxx}" >/dev/null; then
  include=${MPI_INCLUDE:-}
  [ -f "$include/mpi.h" ] || { echo "process_group: no mpicxx here, and MPI_INCLUDE names no folder of mpi.h" >&2; exit 3; }
  library=$(find "$(dirname "$(dirname "$(realpath "$(command -v mpirun)")")")/lib" -name 'libmpi.so*' 2>/dev/null | head -n 1)
  [ -n "$library" ] || library=$(ldconfig -p | sed -nE 's/.*libmpi\.so[^ ]* .*=> (.*)/\1/p' | head -n 1)
  [ -n "$library" ] || { echo "process_group: no libmpi.so beside mpirun or by ldconfig" >&2; exit 3; }
  ln -sf "$library" "$work/mpi/libmpi.so"
  link="-L$work/mpi -Wl,-rpath,$(dirname "$library") -lmpi"
  cat >"$work/mpi/mpicxx" <<WRAPPER
#!/usr/bin/env bash
case \${1:-} in
  -showme:compile) echo "-I$include" ;;
  -showme:link) echo "$link" ;;
  -showme:incdirs) echo "$include" ;;
  -showme:libdirs) echo "$work/mpi" ;;
  -show* | -compile_info | -link_info) exit 1 ;;
  *) exec g++ -I"$include" "\$@" $link ;;
esac
WRAPPER
  chmod +x "$work/mpi/mpicxx"
  export MPICXX=$work/mpi/mpicxx
  echo "mpicxx: made of g++, $include and $library"
fi

if ! compgen -G "$work/site/gear/_core*.so" >/dev/null; then
  began=$SECONDS
  if ! { cmake -S . -B "$work/host" -DGEAR_WITH_CUDA=OFF -DGEAR_WITH_MPI=OFF -DGEAR_WITH_VERBS=OFF \
    -DGEAR_WITH_FABRIC=OFF -DPython_EXECUTABLE="$("$python" -c 'import sys; print(sys.executable)')" \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" &&
    cmake --build "$work/host" --parallel "$(nproc)" --target _core; } >"$work/host.log" 2>&1; then
    tail -n 30 "$work/host.log"
    exit 1
  fi
  rm -rf "$work/site"
  mkdir -p "$work/site"
  cp -r gear "$work/site/"
  cp "$work"/host/_core*.so "$work/site/gear/"
  echo "gear._core built in $((SECONDS - began)) s"
fi
rm -rf "$work/site/gear_mpi" && cp -r process_group/python/gear_mpi "$work/site/gear_mpi"
began=$SECONDS
library=$(tools/c10d.sh --python="$python" --to="$work/site/gear_mpi/c10d")
echo "gear_mpi._c10d built in $((SECONDS - began)) s: $library"

options=()
if mpirun --version | grep -q 'Open MPI'; then options=(--allow-run-as-root --oversubscribe --bind-to none); fi
cd "$work"
rm -f passed.*
code=0
PYTHONSAFEPATH=1 PYTHONPATH="$work/site" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 \
  timeout --kill-after=10 "${BUDGET_S:-400}" mpirun "${options[@]}" -n "${RANKS:-2}" \
  "$python" "$OLDPWD/tests/gpu/process_group_worker.py" || code=$?
# A rank without MPI_Finalize is a failure to mpirun; the last check leaves none that could.
if [ "$(find . -maxdepth 1 -name 'passed.*' | wc -l)" -eq "${RANKS:-2}" ]; then exit 0; fi
echo "process_group: not all ranks passed (mpirun: $code)" >&2
exit 1
