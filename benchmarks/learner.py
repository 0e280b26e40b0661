"""Updates a second of `gear train`, captured and not: SAC on Pendulum, Double DQN on CartPole.

    python benchmarks/learner.py --device cuda --json learner.json

Each row is a run in a fresh process: environment steps with an update after each. `loop`: acting,
storing and learning as a run does it; `learn`: updates of batches that are there already, end to
end. Rows of one configuration but another `run` say whether its weights are bit-equal to the first.
`--seeds N` lets both tasks learn to their end, N times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TASKS = {"sac": ("env=pendulum", "algo.batch_size=256"), "dqn": ("env=cartpole",)}
WARM = 100  # updates


def make(overrides: list[str]) -> Any:
    from hydra import compose, initialize_config_dir

    import gear.train
    from gear.train.config import read
    from gear.train.loop import Learner

    conf = Path(gear.train.__file__).parent / "conf"
    with initialize_config_dir(str(conf), version_base="1.3"):
        return Learner(read(compose("train", overrides)))


def synchronize(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def digest(learner: Any) -> str:
    found = hashlib.sha256()
    for module in learner.algorithm.modules.values():
        for tensor in module.state_dict().values():
            found.update(tensor.detach().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def advance(learner: Any, updates: int) -> None:
    while learner.counters.updates < updates:
        learner.step()


def measure(device: str, updates: int, overrides: list[str]) -> dict[str, Any]:
    """One run of so many updates after the warm ones; then the same number with nothing between."""
    learner = make([*overrides, f"device={device}"])
    advance(learner, WARM)
    synchronize(device)
    began, before = time.perf_counter(), learner.counters.env_steps
    advance(learner, WARM + updates)
    synchronize(device)
    passed = time.perf_counter() - began
    said = {
        "launching": learner.algorithm.launching,
        "loop_updates_per_s": updates / passed,
        "env_steps_per_s": (learner.counters.env_steps - before) / passed,
        "replay_share": learner.counters.replay_seconds / learner.counters.seconds,
        "digest": digest(learner),
    }
    batch = next(learner.loader)
    began = time.perf_counter()
    for _ in range(updates):
        learner.algorithm.learn(batch)
    launched = time.perf_counter() - began
    synchronize(device)
    passed = time.perf_counter() - began
    learner.close()
    return {**said, "learn_updates_per_s": updates / passed, "host_us": 1e6 * launched / updates}


def train(device: str, overrides: list[str]) -> dict[str, Any]:
    """A whole run; the mean return of its last ten episodes."""
    learner = make([*overrides, f"device={device}"])
    c = learner.counters
    while c.env_steps < learner.config.total_steps:
        learner.step()
    last = c.returns[-10:]
    learner.close()
    return {"final_return": sum(last) / len(last), "seconds": c.seconds, "updates": c.updates}


def apart(*arguments: str) -> dict[str, Any]:
    """This script in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--row", choices=["measure", "train"], help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="of every run, as of gear train")
    a = parser.parse_args()
    if a.row:
        row = measure(a.device, a.updates, a.overrides) if a.row == "measure" else None
        print(json.dumps(row or train(a.device, a.overrides)))
        return
    rows: list[dict[str, Any]] = []
    for algo, task in TASKS.items():
        for launched in ("auto", "off"):
            words = [*task, f"algo.compile={launched}", *a.overrides]
            place = ["--device", a.device, "--updates", str(a.updates)]
            for run in range(a.runs):
                row = {"algo": algo, "compile": launched, "run": run}
                row |= apart("--row", "measure", *place, *words)
                first = next(
                    (r for r in rows if r["algo"] == algo and r.get("compile") == launched), row
                )
                row["bit_equal"] = first["digest"] == row["digest"]
                rows.append(row)
                print(json.dumps(row), flush=True)
        for seed in range(a.seeds):
            words = [*task, f"seed={seed}", *a.overrides]
            row = {"algo": algo, "seed": seed}
            row |= apart("--row", "train", "--device", a.device, *words)
            rows.append(row)
            print(json.dumps(row), flush=True)
    if a.json:
        a.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
