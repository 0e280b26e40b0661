"""One run from configuration to report."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

import gear
from gear.train import report, start_table
from gear.train.checkpoint import Checkpoint, checkpoints
from gear.train.config import Config, of_the_run, read, read_place
from gear.train.display import Display
from gear.train.interrupt import Interrupt
from gear.train.loggers import MetricWriter, make_writers
from gear.train.loop import Ended, Learner
from gear.train.ranks import Ranks, decline_for, start_ranks
from gear.train.resume import choose

REPEAT_S = 10.0  # a launcher passes on the Ctrl-C that the terminal has given to the ranks, too


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
    With several ranks all of them call it; rank 0 writes and shows what there is to see.
    Raises InvalidArgument before anything is built, Interrupted after a signal to any rank.
    """
    try:
        chosen, start = choose(cfg, overrides, run_dir)
        place = read_place(chosen)
    except (gear.GearError, OSError) as error:
        decline_for(_by_hand(cfg), error)
        raise
    cfg = chosen
    with (
        start_ranks(place) as ranks,
        Interrupt(repeat_s=REPEAT_S if ranks.size > 1 else 0) as signals,
    ):
        ranks.alike(lambda: of_the_run(cfg), "[train] gear train")
        config = ranks.together(lambda: _checked(cfg, ranks.size))
        run_dir, start = _agree(ranks, run_dir, start, continue_in_place)
        ranks.together(lambda: _check_folder(run_dir, start))
        console = Console(quiet=ranks.rank > 0)
        title = f"{config.algo.name.upper()} on {config.env.id}"
        with Display(console, title, config.total_steps) as display:
            learner = Learner(config, start=start, note=_note(display, ranks.rank), ranks=ranks)
            ranks.together(lambda: _make_folder(run_dir, config) if ranks.rank == 0 else None)
            start_table.show(console, learner)
            origin = f"continues {_relative(start.path)}" if start else "starts"
            display.note(f"{title}, seed {config.seed}: {origin}, writing to {run_dir}")
            summary = _run(learner, signals, display, run_dir)
    if learner.stop:
        launcher = f"  (by {ranks.size} ranks)" if ranks.size > 1 else ""
        console.print(
            f"{signal.Signals(learner.stop).name}: stopped at step {summary['env_steps']:,}, "
            f"saved; continue with\n  gear train checkpoint={run_dir}{launcher}",
            highlight=False,
            soft_wrap=True,
        )
        raise Interrupted(128 + learner.stop)
    if ranks.rank == 0:
        curve = report.draw_curve(run_dir, learner.counters, f"{title}, seed {config.seed}")
        report.print_report(console, config, run_dir, summary, curve)
    return summary


def _by_hand(cfg: DictConfig) -> dict[str, object]:
    """Where this rank is, as far as the configuration says it."""
    keys = ("rank", "world_size", "dist.master_addr", "dist.master_port")
    given = {key: OmegaConf.select(cfg, key) for key in keys}
    return {key: value for key, value in given.items() if value is not None}


def _checked(cfg: DictConfig, num_ranks: int) -> Config:
    config = read(cfg)
    config.check_ranks(num_ranks)
    return config


def _note(display: Display, rank: int) -> Callable[[str], None]:
    """Where the learner's warnings go: ranks that show nothing say them, too."""
    if rank == 0:
        return display.note
    return lambda message: print(f"rank {rank}: {message}", file=sys.stderr, flush=True)


def _check_folder(run_dir: Path, start: Checkpoint | None) -> None:
    """Refuses to write where there is a checkpoint that this run does not come from or go on from.

    It would be replaced sooner or later, and the metrics that belong to it.
    """
    there = checkpoints(run_dir)
    if not there or (start and there[-1].path.resolve() == start.path.resolve()):
        return
    mine = f"from {_relative(start.path)}" if start else "afresh"
    raise gear.InvalidArgument(
        f"[train] {run_dir} holds a run up to step {there[-1].step} and this one starts {mine}, so "
        "it would replace what is there: write elsewhere with hydra.run.dir=DIR, continue the "
        f"newest with checkpoint={run_dir}, or move the newer checkpoints away"
    )


def _make_folder(run_dir: Path, config: Config) -> None:
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.yaml").write_text(config.yaml, encoding="utf-8")


def _agree(
    ranks: Ranks, run_dir: Path, start: Checkpoint | None, continue_in_place: bool
) -> tuple[Path, Checkpoint | None]:
    """Rank 0's directory for the run and checkpoint to start from: the others' clocks differ."""
    run_dir = _relative(start.run_dir if start and continue_in_place else run_dir)
    mine = [os.path.abspath(run_dir), os.path.abspath(start.path) if start else None]
    found_dir, found_start = ranks.exchange(mine)[0]
    assert found_dir is not None
    return _relative(Path(found_dir)), Checkpoint(Path(found_start)) if found_start else None


def _run(learner: Learner, signals: Interrupt, display: Display, run_dir: Path) -> dict[str, Any]:
    """From the first step to the last checkpoint; closes the learner."""
    config, ranks = learner.config, learner.ranks
    try:
        _learn(learner, signals, display, run_dir)
        summary = report.summarise(
            learner.counters, batch_size=config.algo.batch_size * ranks.size, seed=config.seed
        )
        if ranks.rank == 0:
            report.write_summary(run_dir, summary)
        if learner.stop or config.checkpoint_every:
            learner.save(run_dir)
    except BaseException:
        # Closing is collective: among several ranks, after an error, it would wait for the others.
        if ranks.size == 1:
            learner.close()
        raise
    learner.close()
    return summary


def _learn(learner: Learner, signals: Interrupt, display: Display, run_dir: Path) -> None:
    config, c = learner.config, learner.counters
    metrics = _Metrics(learner, display, run_dir)
    try:
        while c.env_steps < config.total_steps and not learner.stop:
            before = c.env_steps
            metrics.write(learner.step(signals.signum))
            every = config.checkpoint_every
            if every and c.env_steps // every > before // every:
                learner.save(run_dir)
            display.update(learner)
        display.update(learner, force=True)
    finally:
        metrics.close()


class _Metrics:
    """A row for every episode, written by rank 0: what it learned from is as good as any share."""

    def __init__(self, learner: Learner, display: Display, run_dir: Path) -> None:
        config, c = learner.config, learner.counters
        columns = [
            *("episode", "return", "length", "seconds", "env_steps_per_s", "samples_per_s"),
            *("replay_fill", *learner.algorithm.metric_names),
        ]
        self._learner = learner
        self._display = display
        self._writers: list[MetricWriter] = []
        if learner.ranks.rank == 0:
            self._writers = make_writers(config.logger.writers, run_dir, columns, c.env_steps)
        self._seen = (c.seconds, c.env_steps, c.updates)

    def write(self, news: Sequence[Ended]) -> None:
        if not news or self._learner.ranks.rank > 0:
            return
        learned = self._learner.algorithm.metrics()
        if learned:
            self._display.loss(next(iter(learned.values())))
        rates = self._rates()
        first = len(self._learner.counters.returns) - len(news)
        for number, ended in enumerate(news, first):
            row = {"episode": number, "return": ended.episode_return, "length": ended.length}
            for writer in self._writers:
                writer.write(self._learner.counters.env_steps, {**row, **rates, **learned})

    def _rates(self) -> Mapping[str, float]:
        """Since the previous rows."""
        learner, c = self._learner, self._learner.counters
        passed = max(c.seconds - self._seen[0], 1e-9)
        samples = (c.updates - self._seen[2]) * learner.config.algo.batch_size * learner.ranks.size
        rates = {
            "seconds": c.seconds,
            "env_steps_per_s": (c.env_steps - self._seen[1]) / passed,
            "samples_per_s": samples / passed,
            "replay_fill": len(learner.buffer) / learner.buffer.capacity,
        }
        self._seen = (c.seconds, c.env_steps, c.updates)
        return rates

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def _relative(path: Path) -> Path:
    """The path as the user would type it: relative if it lies below the working directory."""
    path = Path(os.path.abspath(path))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
