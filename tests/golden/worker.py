#!/usr/bin/env python3
"""One rank of golden cases over processes: prints its hashes, by the name of the case, as JSON.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \\
        worker.py '[{"transport": "shared_memory", "place": ["host"]}, "topk-step-both-2-fifo"]'

`place`: the arguments of places.Tier. A rank on a GPU takes the one of its number, modulo theirs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from places import Tier

import gear
from golden.cases import all_cases
from golden.play import TIMEOUT_S, play_rank


def main() -> None:
    options, *names = json.loads(sys.argv[1])
    tier = Tier(*options["place"])
    cases = {case.name: case for case in all_cases()}
    with gear.Group.from_env(timeout_s=TIMEOUT_S, transport=options["transport"]) as group:
        if tier.delivers_to_gpu:
            import torch

            torch.cuda.set_device(group.rank % torch.cuda.device_count())
        found = {name: play_rank(cases[name], tier, group) for name in names}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
