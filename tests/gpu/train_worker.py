"""One learner on a GPU, in a process of its own; prints one JSON line.

train_worker.py learn FOLDER KEY=VALUE...    steps during which torch refuses to wait for the GPU
train_worker.py whole FOLDER KEY=VALUE...    a run, saved at its middle into FOLDER
train_worker.py rest FOLDER                  that run, continued from there
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import warnings
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir

import gear.train
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.record.checkpoint import find

MIDDLE, END = 170, 300
mode, folder, overrides = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
warnings.filterwarnings("error", message=".*determinis.*")  # a kernel that has no such form


def advance(learner: Learner, step: int) -> None:
    while learner.counters.env_steps < step:
        learner.step()


def digest(learner: Learner) -> str:
    """Of what decides the future."""
    found = hashlib.sha256()
    batch = next(learner.loader)
    states = [module.state_dict() for module in learner.algorithm.modules.values()]
    tensors = [tensor for state in states for tensor in state.values()]
    tensors += [batch[name] for name in sorted(batch)] + [batch.ids, batch.weights]
    if torch.cuda.is_initialized():
        tensors.append(torch.cuda.get_rng_state())
    for tensor in [*tensors, torch.get_rng_state()]:
        found.update(torch.as_tensor(tensor).detach().cpu().numpy().tobytes())
    found.update(json.dumps(learner.counters.returns).encode())
    return found.hexdigest()


if mode == "rest":
    saved = find(folder)
    learner = Learner(read(saved.config()), start=saved)
    assert learner.counters.env_steps == MIDDLE
else:
    conf = Path(gear.train.__file__).parent / "conf"
    with initialize_config_dir(str(conf), version_base="1.3"):
        learner = Learner(read(compose("train", [*overrides, f"total_steps={END}"])))
    advance(learner, MIDDLE)

if mode == "learn":
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(5):
        learner.step()  # of a small network: it acts with the host's copy
    torch.cuda.set_sync_debug_mode("default")
else:
    if mode == "whole":
        learner.save(folder)
    advance(learner, END)

networks = list(learner.algorithm.modules.values())
said = {
    "updates": learner.counters.updates,
    "device": str(next(networks[0].parameters()).device),
    "cublas": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
    "finite": all(math.isfinite(value) for value in learner.algorithm.metrics().values()),
    "launching": learner.algorithm.launching,
    "digest": digest(learner),
}
learner.close()
print(json.dumps(said), flush=True)
