"""What a run leaves behind: summary.json, learning_curve.png, and the closing words."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from gear.train.config import ActingAlgo, Config, Ddp, Puzzles
from gear.train.config.said import command, played_words, value
from gear.train.counters import Counters
from gear.train.installed import NO_PICTURE, has
from gear.train.loop import Learner
from gear.train.models.exported import evaluation_of, save_policy
from gear.train.record import folder
from gear.train.record.display import Display
from gear.train.record.resume import asked_for

FINAL_EPISODES = 10
POLICY = "policy.pt"
BEST_POLICY = "best_policy.pt"  # of the evaluation with the highest return


def summarise(counters: Counters, *, batch_size: int, seed: int) -> dict[str, Any]:
    """The content of summary.json.

    final_return    mean undiscounted return of the last 10 finished episodes; null if there is none
    env_steps_per_s, samples_per_s   over `seconds`, the wall time spent acting and learning
    replay_share    share of `seconds` inside append, end_episode, next(loader) and update
    checkpoint_seconds   wall time for which checkpoints held up learning, outside `seconds`
    eval_return     mean return of the last greedy evaluation, of puzzles the share of the first set
                    that was solved; null if there was none
    """
    seconds = max(counters.seconds, 1e-9)
    last = counters.returns[-FINAL_EPISODES:]
    return {
        "final_return": float(np.mean(last)) if last else None,
        "eval_return": counters.eval_returns[-1] if counters.eval_returns else None,
        "env_steps": counters.env_steps,
        "episodes": len(counters.returns),
        "updates": counters.updates,
        "env_steps_per_s": counters.env_steps / seconds,
        "samples_per_s": counters.updates * batch_size / seconds,
        "replay_share": counters.replay_seconds / seconds,
        "checkpoint_seconds": counters.checkpoint_seconds,
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


def write_policy(path: Path, learner: Learner, evaluation: tuple[int, float] | None = None) -> None:
    """Where the algorithm's policy can be used by itself. After `ready_to_play`."""
    exported = learner.algorithm.exported()
    if exported:
        interface = learner.envs[0].interface
        run = folder.named(path.parent)
        save_policy(path, exported, interface, learner.config.yaml, run, evaluation)


def write_best_policy(run_dir: Path, learner: Learner) -> None:
    """RUN_DIR/best_policy.pt, if the last evaluation was better than the one it is of. After it."""
    counters = learner.counters
    step, value = counters.eval_steps[-1], counters.eval_returns[-1]
    kept = _kept(run_dir, counters)
    if value > (kept[1] if kept else -np.inf):
        write_policy(run_dir / BEST_POLICY, learner, (step, value))


def _kept(run_dir: Path, counters: Counters) -> tuple[int, float] | None:
    """Step and value of the evaluation that RUN_DIR/best_policy.pt is of; None: there is none, or
    it is of steps that this run, which went on from an earlier checkpoint, has not taken."""
    path = run_dir / BEST_POLICY
    found = evaluation_of(path) if path.is_file() else None
    made = zip(counters.eval_steps, counters.eval_returns, strict=True)
    return found if found is not None and found in made else None


def draw_curve(run_dir: Path, counters: Counters, title: str, *, config: Config) -> Path | None:
    """RUN_DIR/learning_curve.png: each episode's return, the mean of the last 10, and the
    evaluations; of puzzles the share that is solved. None: what draws is not installed."""
    if not has("matplotlib"):
        return None
    from matplotlib.figure import Figure

    steps, returns = np.array(counters.return_steps), np.array(counters.returns)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, returns, ".", alpha=0.4, label="episode")
    if len(returns) >= FINAL_EPISODES:
        mean = np.convolve(returns, np.ones(FINAL_EPISODES) / FINAL_EPISODES, "valid")
        axes.plot(steps[FINAL_EPISODES - 1 :], mean, label=f"mean of {FINAL_EPISODES} episodes")
    if counters.eval_steps:
        axes.plot(counters.eval_steps, counters.eval_returns, "o-", label="greedy evaluation")
    steps_are = "environment steps" if isinstance(config.algo, ActingAlgo) else "updates"
    value_is = "share solved" if isinstance(config.data, Puzzles) else "return"
    axes.set(xlabel=steps_are, ylabel=value_is, title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    path = run_dir / "learning_curve.png"
    figure.savefig(path, dpi=120)
    return path


def show(
    display: Display,
    config: Config,
    run_dir: Path,
    *,
    summary: dict[str, Any],
    counters: Counters,
    curve: Path | None,
) -> None:
    """The closing table and what to try next."""
    title = f"{config.algo.name.upper()} on {config.env.id}, seed {config.seed}"
    table = Table("", "", title=title, show_header=False)
    table.add_row("return, last 10 episodes", _number(summary["final_return"]))
    if config.eval_every and isinstance(config.data, Puzzles):
        table.add_row("share solved, last evaluation", f"{summary['eval_return'] or 0:.1%}")
    elif config.eval_every:
        table.add_row("return, last evaluation", _number(summary["eval_return"]))
    table.add_row("environment steps", f"{summary['env_steps']:,}")
    table.add_row("environment steps/s", f"{summary['env_steps_per_s']:,.0f}")
    table.add_row("samples/s", f"{summary['samples_per_s']:,.0f}")
    table.add_row("time in replay", f"{summary['replay_share']:.1%}")
    table.add_row("seconds", f"{summary['seconds']:,.1f}")
    table.add_row("seconds held up by checkpoints", f"{summary['checkpoint_seconds']:,.1f}")
    display.show(table)
    display.note(f"learning curve: {curve or NO_PICTURE}")
    if (run_dir / POLICY).is_file():
        display.note(f"policy: {run_dir / POLICY}")
    kept = _kept(run_dir, counters)
    if kept:
        of = f"of the best evaluation, {kept[1]:,.1f} after step {kept[0]:,}"
        display.note(f"policy {of}: {run_dir / BEST_POLICY}")
    launcher = ", each under the same launcher" if isinstance(config.dist, Ddp) else ""
    display.note(f"try next{launcher}:")
    for words in suggestions(config, run_dir):
        display.note(f"  {words}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def suggestions(config: Config, run_dir: Path) -> Sequence[str]:
    """Commands that work after this run."""
    longer = (*words_to_continue(config, run_dir), f"total_steps={2 * config.total_steps}")
    if not isinstance(config.algo, ActingAlgo):
        return (command(*longer),)
    other = "cartpole" if config.env.name != "cartpole" else "pendulum"
    replay = "prioritized" if config.replay.sampler == "uniform" else "uniform"
    changed = (f"replay={replay}", f"algo.n_step={3 if config.algo.n_step == 1 else 1}")
    dist = (f"dist={config.dist.name}",) if isinstance(config.dist, Ddp) else ()
    return (
        command("gear", "train", *played_words(config), *changed, *dist),
        command("gear", "train", f"env={other}", *dist),
        command(*longer),
    )


def words_to_continue(config: Config, run_dir: Path) -> Sequence[str]:
    """The command that continues this run, of which the user knows who made it."""
    saved = OmegaConf.create(config.yaml)
    assert isinstance(saved, DictConfig)
    trust = ("trust=true",) if asked_for(saved) else ()
    return ("gear", "train", f"checkpoint={value(str(run_dir))}", *trust)
