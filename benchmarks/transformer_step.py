"""Tokens a second of `gear train` on the decision transformer, and what its batches cost.

    torchrun --nproc-per-node=2 benchmarks/transformer_step.py --dist fsdp2 --json found.json

Learns from made-up episodes as a run does (`stream`), then again and again from one batch of them
(`fixed`), in turns. `fixed_share` is the time of a fixed step over that of a streamed one: 1 where
replay costs nothing. `wait_share` is the share of a streamed step's time inside replay's calls.
Where the host launches more slowly than the GPU works, as with small batches, both steps take what
the host does, and their ratio is noise: give a larger `--batch`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

EPISODES, EPISODE_STEPS = 64, 1024
TOKENS_A_STEP = 3


def write_episodes(path: Path) -> None:
    """Pendulum's columns, random values."""
    import gear

    columns = [
        gear.Column("obs", (3,), "float32"),
        gear.Column("action", (1,), "float32"),
        gear.Column("reward", (), "float32"),
    ]
    rng = np.random.default_rng(0)
    with gear.ReplayBuffer(gear.Schema(columns), EPISODES * EPISODE_STEPS) as buffer:
        with buffer.writer() as writer:
            for _ in range(EPISODES):
                shapes = {"obs": (3,), "action": (1,), "reward": ()}
                steps = {
                    name: rng.uniform(-1, 1, (EPISODE_STEPS, *shape)).astype(np.float32)
                    for name, shape in shapes.items()
                }
                writer.extend(**steps)
                writer.end_episode()
        buffer.save(path)


def seconds_of(work: Any, steps: int, device: str) -> float:
    """A step's seconds, all of the GPU's work included."""
    import torch

    def settle() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)

    settle()
    began = time.perf_counter()
    for _ in range(steps):
        work()
    settle()
    return (time.perf_counter() - began) / steps


def measure(config: Any, ranks: Any, *, warm: int, steps: int, rounds: int) -> dict[str, Any]:
    from gear.train.loop import Learner

    learner = Learner(config, ranks=ranks)
    learner_step, algorithm = learner.step, learner.algorithm
    for _ in range(warm):
        learner_step()
    batch = next(learner.loader)
    for _ in range(3):
        algorithm.learn(batch)
    c = learner.counters
    stream, fixed, waited = [], [], 0.0
    for _ in range(rounds):
        before = c.replay_seconds
        stream.append(seconds_of(learner_step, steps, ranks.device))
        waited += c.replay_seconds - before
        fixed.append(seconds_of(lambda: algorithm.learn(batch), steps, ranks.device))
    rows = batch["action"].shape[0] * (1 if config.algo.packed else batch["action"].shape[1])
    tokens = sum(ranks.exchange(int(rows))) * TOKENS_A_STEP
    step = statistics.median(stream)
    found = {
        "parameters": sum(p.numel() for p in algorithm.modules["model"].parameters()),
        "tokens_per_s": tokens / step,
        "step_ms": 1e3 * step,
        "fixed_share": statistics.median(fixed) / step,
        "wait_share": waited / (sum(stream) * steps),
        "device": ranks.device_name(),
        "ranks": ranks.size,
    }
    learner.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dist", default="ddp")
    parser.add_argument("--tier", default="pinned")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="dt_100m")
    parser.add_argument("--context", type=int, default=341, help="steps: three tokens each")
    parser.add_argument("--batch", type=int, default=32, help="windows of each rank")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--override", action="append", default=[])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    from hydra import compose, initialize_config_dir

    import gear.train
    from gear.train.config import read
    from gear.train.ranks.meeting import start_ranks

    with tempfile.TemporaryDirectory() as folder:
        write_episodes(Path(folder) / "replay")
        conf = Path(gear.train.__file__).parent / "conf"
        overrides = [
            *("data=saved", f"data.path={folder}/replay", f"model={given.model}"),
            *(f"dist={given.dist}", f"replay.tier={given.tier}", f"device={given.device}"),
            *(f"algo.context={given.context}", f"algo.batch_size={given.batch}"),
            *("algo.precision=bfloat16", "deterministic=false", "total_steps=100000"),
            *given.override,
        ]
        with initialize_config_dir(str(conf), version_base="1.3"):
            config = read(compose("train", overrides))
        with start_ranks(config) as ranks:
            found = measure(config, ranks, warm=10, steps=given.steps, rounds=given.rounds)
            if ranks.rank == 0:
                line = json.dumps({"dist": given.dist, "tier": given.tier, **found}, indent=2)
                print(line)
                if given.json:
                    given.json.write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
