"""One run from configuration to report."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from gear.train import report
from gear.train.display import Display
from gear.train.interrupt import Interrupt
from gear.train.loggers import make_writers
from gear.train.loop import Learner
from gear.train.resume import choose
from gear.train.validate import validate


class Interrupted(Exception):
    """A signal ended the run; everything is saved. `exit_code` is 128 + the signal's number."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"interrupted, exit code {exit_code}")
        self.exit_code = exit_code


def train(
    cfg: DictConfig, overrides: Sequence[str], run_dir: Path, *, continue_in_place: bool = True
) -> dict[str, Any]:
    """Run to `total_steps`, write everything into `run_dir` and return the summary.

    overrides: the words of the command line, which say what differs from a checkpoint on purpose.
    continue_in_place: a continued run writes into the directory that it came from, not `run_dir`.
    Raises InvalidArgument before anything is built, Interrupted after a signal.
    """
    console = Console()
    cfg, start = choose(cfg, overrides, run_dir)
    validate(cfg)
    OmegaConf.resolve(cfg)
    run_dir = _relative(start.run_dir if start and continue_in_place else run_dir)
    title = f"{cfg.algo.name.upper()} on {cfg.env.id}"
    with Interrupt() as interrupt, Display(console, title, cfg.total_steps) as display:
        learner = Learner(cfg, start=start, note=display.note)
        run_dir.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(cfg, run_dir / "config.yaml")
        origin = f"continues {_relative(start.path)}" if start else "starts"
        display.note(f"{title}, seed {cfg.seed}: {origin}, writing to {run_dir}")
        try:
            _learn(learner, interrupt, display, run_dir)
            summary = report.summarise(
                learner.counters, batch_size=cfg.algo.batch_size, seed=cfg.seed
            )
            report.write_summary(run_dir, summary)
            if interrupt.signum or cfg.checkpoint_every:
                learner.save(run_dir)
        finally:
            learner.close()
    if interrupt.signum:
        console.print(
            f"{signal.Signals(interrupt.signum).name}: stopped at step {summary['env_steps']:,}, "
            f"saved; continue with\n  gear train checkpoint={run_dir}",
            highlight=False,
            soft_wrap=True,
        )
        raise Interrupted(interrupt.exit_code)
    curve = report.draw_curve(run_dir, learner.counters, f"{title}, seed {cfg.seed}")
    report.print_report(console, cfg, run_dir, summary, curve)
    return summary


def _learn(learner: Learner, interrupt: Interrupt, display: Display, run_dir: Path) -> None:
    cfg, c = learner.cfg, learner.counters
    columns = [
        *("episode", "return", "length", "seconds", "env_steps_per_s", "samples_per_s"),
        *("replay_fill", *learner.algorithm.metric_names),
    ]
    writers = make_writers(cfg.logger.writers, run_dir, columns, c.env_steps)
    seen = (c.seconds, c.env_steps, c.updates)
    try:
        while c.env_steps < cfg.total_steps and not interrupt.signum:
            length = learner.step()
            if length:
                metrics = learner.algorithm.metrics()
                if metrics:
                    display.loss(next(iter(metrics.values())))
                passed = max(c.seconds - seen[0], 1e-9)
                row = {
                    "episode": len(c.returns) - 1,
                    "return": c.returns[-1],
                    "length": length,
                    "seconds": c.seconds,
                    "env_steps_per_s": (c.env_steps - seen[1]) / passed,
                    "samples_per_s": (c.updates - seen[2]) * cfg.algo.batch_size / passed,
                    "replay_fill": len(learner.buffer) / learner.buffer.capacity,
                    **metrics,
                }
                seen = (c.seconds, c.env_steps, c.updates)
                for writer in writers:
                    writer.write(c.env_steps, row)
            if cfg.checkpoint_every and c.env_steps % cfg.checkpoint_every == 0:
                learner.save(run_dir)
            display.update(learner)
        display.update(learner, force=True)
    finally:
        for writer in writers:
            writer.close()


def _relative(path: Path) -> Path:
    """The path as the user would type it: relative if it lies below the working directory."""
    path = Path(os.path.abspath(path))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
