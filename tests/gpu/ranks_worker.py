"""One rank that averages tensors on a GPU; prints one JSON line. Arguments: device, whether to die.

A rank 1 that is to die kills itself; the others print the error that names it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys

import torch

import gear
from gear.train.ranks import Ranks

device, die = sys.argv[1], sys.argv[2] == "die"
with Ranks(gear.Group.from_env(timeout_s=300), device) as ranks:
    generator = torch.Generator().manual_seed(ranks.rank)
    sizes = [(3, 5), (), (1000,), (64, 64)]
    tensors = [torch.randn(size, generator=generator).to(ranks.device) for size in sizes]
    said = {"backend": ranks.backend, "device": ranks.device, "sum": tensors[2].sum().item()}
    ranks.average(tensors)
    said["mean"] = tensors[2].sum().item()
    found = hashlib.sha256(b"".join(t.cpu().numpy().tobytes() for t in tensors))
    said["digest"] = found.hexdigest()
    ranks.broadcast([tensors[0].fill_(ranks.rank + 1)])
    said["first"] = tensors[0].mean().item()
    if ranks.backend == "nccl":
        # Rank 0 is through with its call before the others have begun theirs.
        counts = [torch.full((8,), float(ranks.rank), device=ranks.device)]
        if ranks.rank == 0:
            ranks.average(counts)
        ranks.barrier()
        if ranks.rank > 0:
            ranks.average(counts)
        said["averaged"] = counts[0].tolist() == [(ranks.size - 1) / 2] * 8
    if die:
        try:
            if ranks.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            ranks.average(tensors)
            # As the next action would: NCCL's kernel waits, and this must not wait for ever.
            said["of no use"] = tensors[0].sum().item()
            ranks.check()
        except gear.TransportError as error:
            said["error"] = str(error)
            print(json.dumps(said), flush=True)
            raise SystemExit(2) from error
    print(json.dumps(said), flush=True)
