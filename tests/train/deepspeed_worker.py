"""A rank that something else has started; writes FOLDER/rank-N.json.

deepspeed_worker.py FOLDER place    Where the launcher says that it is, and who came.
deepspeed_worker.py FOLDER grid     Its places in two grids of DeepSpeed's, of four ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import gear

# Stages of a pipeline, parts of a tensor, and places that train on different batches.
GRIDS = {"stages": (2, 1, 2), "tensors": (1, 2, 2)}


def place():
    with gear.Group.from_env(timeout_s=60) as group:
        came = [group.exchange(group.rank), group.nodes, group.local_rank]
        return group.rank, {"launcher": group.launcher, "came": came}


def grid():
    import deepspeed
    import torch.distributed as dist
    from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology

    deepspeed.init_distributed("gloo")
    me, found = dist.get_rank(), {}
    for name, shape in GRIDS.items():
        made = PipelineParallelGrid(PipeModelDataParallelTopology(*shape))
        group = gear.Group.from_mpu(made, timeout_s=60)
        found[name] = [group.rank, group.exchange(me), group.replicas.exchange(me)]
    dist.barrier()
    return me, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)  # as programs for DeepSpeed have it
    parser.add_argument("folder", type=Path)
    parser.add_argument("work", choices=("place", "grid"))
    given = parser.parse_args()
    rank, found = {"place": place, "grid": grid}[given.work]()
    found["given"] = sys.argv[1:-2]
    (given.folder / f"rank-{rank}.json").write_text(json.dumps(found))
