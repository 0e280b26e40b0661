"""Programs on gear_mpi and on gloo, by the same ranks: `programs_worker.py FOLDER PROGRAM...`,
started by mpirun. Writes what each returned, by program and backend, to FOLDER/RANK.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2]))

import gear_mpi
from process_group.tests.programs import PROGRAMS

SEGMENT_BYTES = 4096


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group(gear_mpi.NAME)
    small = gear_mpi.Options(segment_bytes=SEGMENT_BYTES)
    pieces = dist.new_group(backend=gear_mpi.NAME, pg_options=small)
    half = dist.new_group(backend=gear_mpi.NAME, pg_options=gear_mpi.Options(compression="bf16"))
    gloo = dist.new_group(backend="gloo")
    groups = {"segmentation": pieces, "compression": half}
    said = {
        name: [program(groups.get(name, dist.group.WORLD)), program(gloo)]
        for name, program in PROGRAMS.items()
        if name in sys.argv[2:]
    }
    said["uncompressed"] = [PROGRAMS["compression"](dist.group.WORLD), said["compression"][1]]
    rank = dist.get_rank()
    alone = [dist.new_group([one], backend=gear_mpi.NAME) for one in range(dist.get_world_size())]
    said["dlrm alone"] = [PROGRAMS["dlrm"](alone[rank]), said["dlrm"][0]]
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(said))
    if rank == 0:
        for name, both in said.items():
            print(f"{name}: {both[0][-1]:.6f} on gear_mpi, {both[1][-1]:.6f} on gloo")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
