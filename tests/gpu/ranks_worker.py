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
with Ranks(gear.Group.from_env(timeout_s=60), device) as ranks:
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
    if die:
        try:
            if ranks.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            ranks.average(tensors)
            # As an optimiser would: NCCL's kernel may hang, and this must not.
            said["never"] = tensors[0].sum().item()
        except gear.TransportError as error:
            said["error"] = str(error)
            print(json.dumps(said), flush=True)
            raise SystemExit(2) from error
    print(json.dumps(said), flush=True)
