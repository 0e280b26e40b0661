"""Does a decision transformer play as well as the policy whose experience it learned from?

    taskset -c 0,1 python benchmarks/decision_transformer.py FOLDER --json found.json

SAC learns Pendulum with `gear train` in FOLDER/sac; its last policy collects experience in
FOLDER/data, with a share of random actions: from greedy ones alone, which follow smoothly from each
other, a transformer learns to go on as before. A decision transformer learns from that in
FOLDER/dt; then both, and random actions, play the same episodes.
Returns are negative here, so a share of one says nothing by itself: `share` is

    (return of the transformer - return of random actions) / (return of SAC - the same)

1 is as good as SAC, 0 as bad as random actions. What is in FOLDER already is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAC = ("env=pendulum", "logger=csv")
DT = (
    *("data=saved", "logger=csv", "model.width=64", "model.layers=2", "model.heads=2"),
    *("optim.lr=1e-3", "eval_every=0"),
)


def train(run_dir: Path, *overrides: str) -> float:
    """Runs `gear train` unless it has run; the seconds that it took, 0 if it had."""
    if (run_dir / "summary.json").is_file():
        return 0.0
    began = time.perf_counter()
    gear("train", f"hydra.run.dir={run_dir}", *overrides)
    return time.perf_counter() - began


def gear(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "gear.cli.app", *words], check=True)


def player_of(run_dir: Path) -> tuple[Any, Callable[[], Any]]:
    """The configuration of a run, and what makes a greedy player for each episode."""
    from gear.train.config import read
    from gear.train.loop import Learner
    from gear.train.record.checkpoint import find

    saved = find(run_dir)
    learner = Learner(read(saved.config()), start=saved)
    learner.algorithm.ready_to_play()
    return learner.config, learner.algorithm.player


def at_random() -> Callable[[NDArray[Any], float], NDArray[Any]]:
    rng = np.random.default_rng(0)
    return lambda view, reward: rng.uniform(-1, 1, 1).astype(np.float32)


def play(config: Any, make_player: Callable[[], Any], episodes: int) -> list[float]:
    """The returns of so many episodes, which begin alike for every player."""
    from gear.train.tasks.make import make_environment

    env, returns = make_environment(config.env, seed=12345), []
    for number in range(episodes):
        env.reset(number)
        player, total, reward, ended = make_player(), 0.0, 0.0, False
        while not ended:
            reward, terminated, truncated = env.step(player(env.view, reward))
            total, ended = total + reward, terminated or truncated
        returns.append(total)
    env.close()
    return returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=8000, help="environment steps of SAC")
    parser.add_argument("--collected", type=int, default=20000, help="steps to learn from")
    parser.add_argument("--random", type=float, default=0.3, help="share of random actions in them")
    parser.add_argument("--updates", type=int, default=2000, help="of the transformer")
    parser.add_argument("--episodes", type=int, default=50, help="that each of them plays")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--override", action="append", default=[], help="of the transformer's run")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
    sac, data, dt = (given.folder / name for name in ("sac", "data", "dt"))
    train(sac, *SAC, f"total_steps={given.steps}")
    if not data.exists():
        words = (f"steps={given.collected}", f"random={given.random}", f"out={data}")
        gear("data", "collect", f"policy={sac}", *words)
    seconds = train(
        dt,
        *DT,
        f"data.path={data}",
        f"threads={given.threads}",
        f"total_steps={given.updates}",
        *given.override,
    )
    config, sac_player = player_of(sac)
    _, dt_player = player_of(dt)
    returns = {
        "random": play(config, at_random, given.episodes),
        "sac": play(config, sac_player, given.episodes),
        "dt": play(config, dt_player, given.episodes),
    }
    means = {name: float(np.mean(each)) for name, each in returns.items()}
    share = (means["dt"] - means["random"]) / (means["sac"] - means["random"])
    found = {"seconds": seconds, "share": share, "means": means, "returns": returns}
    for name, mean in means.items():
        print(f"{name:8} return {mean:10.1f}  (median {np.median(returns[name]):.1f})")
    print(f"the transformer reaches {share:.1%} of SAC's return over random, in {seconds:.0f} s")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
