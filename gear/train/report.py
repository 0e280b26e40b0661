"""What a run leaves behind: summary.json, learning_curve.png, and the closing words."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gear.train.config import Config, Ddp
from gear.train.loop import Counters

FINAL_EPISODES = 10


def summarise(counters: Counters, *, batch_size: int, seed: int) -> dict[str, Any]:
    """The content of summary.json.

    final_return    mean undiscounted return of the last 10 finished episodes; null if there is none
    env_steps_per_s, samples_per_s   over `seconds`, the wall time spent acting and learning
    replay_share    share of `seconds` inside append, end_episode, next(loader) and update
    """
    seconds = max(counters.seconds, 1e-9)
    last = counters.returns[-FINAL_EPISODES:]
    return {
        "final_return": float(np.mean(last)) if last else None,
        "env_steps": counters.env_steps,
        "episodes": len(counters.returns),
        "updates": counters.updates,
        "env_steps_per_s": counters.env_steps / seconds,
        "samples_per_s": counters.updates * batch_size / seconds,
        "replay_share": counters.replay_seconds / seconds,
        "seed": seed,
        "seconds": counters.seconds,
    }


def write_summary(run_dir: Path, summary: dict[str, Any]) -> Path:
    """RUN_DIR/summary.json, replaced as a whole."""
    path = run_dir / "summary.json"
    beside = path.with_suffix(".json.part")
    beside.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    os.replace(beside, path)
    return path


def draw_curve(run_dir: Path, counters: Counters, title: str) -> Path:
    """RUN_DIR/learning_curve.png: each episode's return and the mean of the last 10."""
    from matplotlib.figure import Figure

    steps, returns = np.array(counters.return_steps), np.array(counters.returns)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, returns, ".", alpha=0.4, label="episode")
    if len(returns) >= FINAL_EPISODES:
        mean = np.convolve(returns, np.ones(FINAL_EPISODES) / FINAL_EPISODES, "valid")
        axes.plot(steps[FINAL_EPISODES - 1 :], mean, label=f"mean of {FINAL_EPISODES} episodes")
    axes.set(xlabel="environment steps", ylabel="return", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    path = run_dir / "learning_curve.png"
    figure.savefig(path, dpi=120)
    return path


def print_report(
    console: Console, config: Config, run_dir: Path, summary: dict[str, Any], curve: Path
) -> None:
    """The closing table and what to try next."""
    final = summary["final_return"]
    table = Table(
        "",
        "",
        title=f"{config.algo.name.upper()} on {config.env.id}, seed {config.seed}",
        show_header=False,
    )
    table.add_row("return, last 10 episodes", "-" if final is None else f"{final:,.1f}")
    table.add_row("environment steps", f"{summary['env_steps']:,}")
    table.add_row("environment steps/s", f"{summary['env_steps_per_s']:,.0f}")
    table.add_row("samples/s", f"{summary['samples_per_s']:,.0f}")
    table.add_row("time in replay", f"{summary['replay_share']:.1%}")
    table.add_row("seconds", f"{summary['seconds']:,.1f}")
    console.print(table)
    console.print(f"learning curve: {curve}", highlight=False, soft_wrap=True)
    launcher = ", each under the same launcher" if isinstance(config.dist, Ddp) else ""
    console.print(f"try next{launcher}:", highlight=False)
    for command in suggestions(config, run_dir):
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def suggestions(config: Config, run_dir: Path) -> Sequence[str]:
    """Three commands that work after this run."""
    other = "cartpole" if config.env.name != "cartpole" else "pendulum"
    replay = "prioritized" if config.replay.sampler == "uniform" else "uniform"
    n_step = 3 if config.algo.n_step == 1 else 1
    dist = " dist=ddp" if isinstance(config.dist, Ddp) else ""
    return (
        f"gear train env={config.env.name} replay={replay} algo.n_step={n_step}{dist}",
        f"gear train env={other}{dist}",
        f"gear train checkpoint={run_dir} total_steps={2 * config.total_steps}",
    )
