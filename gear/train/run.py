"""One run from configuration to report."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

import gear
from gear.train.config import Bc, Config, Ddp, Puzzles, check_pairs, of_the_run, read, read_place
from gear.train.config.said import command
from gear.train.installed import need
from gear.train.interrupt import Interrupt, exit_code
from gear.train.loop import Learner
from gear.train.ranks import Ranks
from gear.train.ranks.meeting import decline_for, start_ranks
from gear.train.record import folder, report
from gear.train.record.checkpoint import Checkpoint, checkpoints
from gear.train.record.display import Display
from gear.train.record.loggers import check_installed
from gear.train.record.metrics import Metrics
from gear.train.record.resume import choose
from gear.train.record.start_table import start_table
from gear.train.record.warned import to_stderr, warnings_told
from gear.train.tasks.evaluation import Evaluation

REPEAT_S = 10.0  # a launcher passes on the Ctrl-C that the terminal has given to the ranks, too


class Interrupted(Exception):
    """A signal ended the run; everything is saved."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"interrupted, exit code {exit_code}")
        self.exit_code = exit_code


def train(
    cfg: DictConfig, overrides: Sequence[str], run_dir: Path, *, continue_in_place: bool = True
) -> dict[str, Any]:
    """Run to `total_steps`, write everything into `run_dir` and return the summary.

    overrides: the words of the command line, which say what differs from a checkpoint on purpose.
    continue_in_place: a continued run writes into its directory, if the checkpoint still lies in
        it, and not into `run_dir`.
    With several ranks all of them call it; rank 0 writes and shows what there is to see.
    Raises InvalidArgument before anything is built, Interrupted after a signal to any rank.
    """
    try:
        chosen, start = choose(cfg, overrides, run_dir)
        place = read_place(chosen)
    except (gear.GearError, OSError, KeyboardInterrupt) as error:
        decline_for(_by_hand(cfg), error)
        raise
    typed, cfg = cfg, chosen
    with (
        start_ranks(place) as ranks,
        Interrupt(repeat_s=REPEAT_S if ranks.size > 1 else 0) as signals,
    ):
        ranks.alike(lambda: of_the_run(cfg), "[train] gear train")
        config = ranks.together(lambda: _checked(cfg, ranks.size))
        if start and continue_in_place:
            run_dir = start.run_dir or _named_for(config, typed, run_dir)
        run_dir, start = _agree(ranks, run_dir, start)
        ranks.together(lambda: _check_folder(run_dir, start, trust=config.trust))
        config = ranks.together(lambda: _fitted(config, ranks.size, start))
        console = Console(quiet=ranks.rank > 0)
        title = f"{config.algo.name.upper()} on {config.env.id}"
        display = Display(console, title, config.total_steps)
        with display, warnings_told(_warn(display, ranks)):
            learner = Learner(config, start=start, note=_note(display, ranks.rank), ranks=ranks)
            ranks.together(
                lambda: _make_folder(run_dir, config, start) if ranks.rank == 0 else None
            )
            if ranks.rank == 0:
                display.log_to(run_dir / "train.log")
            display.show(start_table(learner, title))
            origin = f"continues {_relative(start.path)}" if start else "starts"
            display.note(f"{title}, seed {config.seed}: {origin}, writing to {run_dir}")
            if start and start.run_dir is None:
                display.note(
                    f"{_relative(start.path)} does not lie in the folder of its run: what is beside"
                    " it stays as it is, and this run has a folder of its own"
                )
            if learner.algorithm.launching:
                display.note(f"updates: {learner.algorithm.launching}")
            if _is_never_scored(learner):
                display.note(f"no evaluation: eval_every={config.eval_every} is past the last step")
            if start and start.num_ranks != ranks.size:
                display.note(_of_other_ranks(start.num_ranks, config, ranks.size))
            summary = _run(learner, signals, display, run_dir)
            display.rest()
            if learner.stop:
                _say_stopped(display, learner, run_dir)
            elif ranks.rank == 0:
                named = f"{title}, seed {config.seed}"
                curve = report.draw_curve(run_dir, learner.counters, named, config=config)
                counters = learner.counters
                report.show(
                    *(display, config, run_dir),
                    summary=summary,
                    counters=counters,
                    curve=curve,
                )
    if learner.stop:
        raise Interrupted(exit_code(learner.stop))
    return summary


def _say_stopped(display: Display, learner: Learner, run_dir: Path) -> None:
    size, name = learner.ranks.size, signal.Signals(learner.stop).name
    launcher = f"  (by {size} ranks)" if size > 1 else ""
    display.note(f"{name}: stopped at step {learner.steps:,}, saved; continue with")
    words = report.words_to_continue(learner.config, run_dir)
    display.note(f"  {command(*words)}{launcher}")


def _by_hand(cfg: DictConfig) -> dict[str, object]:
    """Where this rank is, as far as the configuration says it."""
    keys = ("rank", "world_size", "dist.master_addr", "dist.master_port")
    given = {key: OmegaConf.select(cfg, key) for key in keys}
    return {key: value for key, value in given.items() if value is not None}


def _checked(cfg: DictConfig, num_ranks: int) -> Config:
    config = read(cfg)
    check_pairs(config, num_ranks)
    check_installed(config.logger.writers)
    scored = isinstance(config.data, Puzzles)
    if scored or num_ranks > 1 or (isinstance(config.algo, Bc) and config.algo.held_out > 0):
        need("torchmetrics", "means over ranks and over held-out data are made by it")
    return config


def _fitted(config: Config, num_ranks: int, start: Checkpoint | None) -> Config:
    """`config` for so many ranks; refuses what would learn from larger or smaller batches."""
    if start is None:
        return config
    of = start.config_ranks
    fitted = config.over(num_ranks, of)
    learners = min(OmegaConf.select(start.config(), "dist.learners") or of, of)
    before = config.algo.batch_size * learners
    now = fitted.algo.batch_size * _learners(config, num_ranks)
    if now != before:
        raise gear.InvalidArgument(
            f"[train] {_relative(start.path)} is of a run that learns from {before} items at a "
            f"time, on {learners} of {of} ranks, and this one would learn from {now}: give "
            "dist.learners= so that the same share of the ranks learns"
        )
    check_pairs(fitted, num_ranks)
    return fitted


def _is_never_scored(learner: Learner) -> bool:
    """Although it was asked to: the run ends before."""
    config = learner.config
    turn = learner.ranks.size * len(learner.envs) if learner.acting else 1
    return -(-config.total_steps // turn) * turn < config.eval_every


def _learners(config: Config, num_ranks: int) -> int:
    dist = config.dist
    return dist.num_learners(num_ranks) if isinstance(dist, Ddp) else num_ranks


def _of_other_ranks(saved: int, config: Config, now: int) -> str:
    """What a run keeps on another number of ranks, and what it does not."""
    share, learners = config.algo.batch_size, _learners(config, now)
    afresh = f"; ranks from {saved} on start afresh" if now > saved else ""
    return (
        f"saved by {saved} rank(s), continued by {now}: batches of {share * learners:,} in all as "
        f"before, {share:,} a rank{afresh}"
    )


def _note(display: Display, rank: int) -> Callable[[str], None]:
    """Where the learner's warnings go: ranks that show nothing say them, too."""
    return display.note if rank == 0 else to_stderr(rank, 2)


def _warn(display: Display, ranks: Ranks) -> Callable[[str], None]:
    """Where warnings of Python and of libraries go: those of rank 0 into the log, too."""
    say = to_stderr(ranks.rank, ranks.size)

    def told(text: str) -> None:
        say(text)
        display.log(text)

    return told


def _check_folder(run_dir: Path, start: Checkpoint | None, *, trust: bool) -> None:
    """Refuses to write where there is a checkpoint that this run does not come from or go on from:
    it would be replaced sooner or later, and the metrics that belong to it. Refuses to write over
    files of others, and, without `trust`, through links to elsewhere.
    """
    there = checkpoints(run_dir)
    if there and not (start and there[-1].path.resolve() == start.path.resolve()):
        mine = f"from {_relative(start.path)}" if start else "afresh"
        raise gear.InvalidArgument(
            f"[train] {run_dir} holds a run up to step {there[-1].step} and this one starts {mine},"
            " so it would replace what is there: write elsewhere with hydra.run.dir=DIR, continue "
            f"the newest with checkpoint={run_dir}, or move the newer checkpoints away"
        )
    folder.refuse_others_files(run_dir)
    if not trust:
        folder.refuse_links(folder.entries(run_dir))


def _make_folder(run_dir: Path, config: Config, start: Checkpoint | None) -> None:
    """A run begins there, unless it is that of `start`, which goes on."""
    if start is None or start.run is None or start.run != folder.run_of(run_dir):
        folder.begin(run_dir)
    (run_dir / "config.yaml").write_text(config.yaml, encoding="utf-8")


def _named_for(config: Config, typed: DictConfig, run_dir: Path) -> Path:
    """`run_dir`, whose name Hydra has made before the checkpoint was read, as conf/train.yaml names
    it for `config`."""
    if run_dir.parent.name != f"{typed.env.name}-{typed.algo.name}-seed{typed.seed}":
        return run_dir
    named = f"{config.env.name}-{config.algo.name}-seed{config.seed}"
    return run_dir.parent.with_name(named) / run_dir.name


def _agree(ranks: Ranks, run_dir: Path, start: Checkpoint | None) -> tuple[Path, Checkpoint | None]:
    """Rank 0's directory for the run and checkpoint to start from: the others' clocks differ."""
    run_dir = _relative(run_dir)
    mine = [os.path.abspath(run_dir), os.path.abspath(start.path) if start else None]
    found_dir, found_start = ranks.exchange(mine)[0]
    assert found_dir is not None
    return _relative(Path(found_dir)), Checkpoint(Path(found_start)) if found_start else None


def _run(learner: Learner, signals: Interrupt, display: Display, run_dir: Path) -> dict[str, Any]:
    """From the first step to the last checkpoint; closes the learner."""
    config, ranks = learner.config, learner.ranks
    try:
        _learn(learner, signals, display, run_dir)
        if learner.stop or config.checkpoint_every:
            _save(learner, display, run_dir)
        summary = report.summarise(
            learner.counters, batch_size=config.algo.batch_size * ranks.size, seed=config.seed
        )
        learner.algorithm.ready_to_play()
        if ranks.rank == 0:
            report.write_summary(run_dir, summary)
            report.write_policy(run_dir / report.POLICY, learner)
    except BaseException:
        # Closing is collective: among several ranks, after an error, it would wait for the others.
        if ranks.size == 1:
            learner.close()
        raise
    learner.close()
    return summary


def _learn(learner: Learner, signals: Interrupt, display: Display, run_dir: Path) -> None:
    config, counters = learner.config, learner.counters
    metrics = Metrics(learner, display, run_dir)
    evaluation = Evaluation(config, learner.ranks)
    try:
        while learner.steps < config.total_steps and not learner.stop:
            before = learner.steps
            metrics.write(learner.step(signals.signum))
            if evaluation.is_due(learner.steps, counters.eval_steps):
                found = evaluation.run(learner.algorithm, lambda: bool(signals.signum))
                if found:
                    metrics.write_evaluation(found)
                    if learner.ranks.rank == 0:
                        report.write_best_policy(run_dir, learner)
            every = config.checkpoint_every
            if every and learner.steps // every > before // every:
                _save(learner, display, run_dir)
            display.update(learner)
        display.update(learner, force=True)
    finally:
        metrics.close()
        evaluation.close()


def _save(learner: Learner, display: Display, run_dir: Path) -> None:
    before = learner.counters.checkpoint_seconds
    saved = learner.save(run_dir)
    paused = learner.counters.checkpoint_seconds - before
    display.log(f"step {saved.step:,}: checkpoint saved, learning paused for {paused:.2f} s")


def _relative(path: Path) -> Path:
    """The path as the user would type it: relative if it lies below the working directory."""
    path = Path(os.path.abspath(path))
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
