"""What a run shows while it works: a bar on a terminal, lines elsewhere and in train.log."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from gear.train.config import Fsdp2
from gear.train.loop import Learner
from gear.train.record.log_file import LogFile

BAR_INTERVAL_S = 0.25
LINE_INTERVAL_S = 10.0


class Display:
    """Context manager around a run; `update` costs a clock read unless something is due.

    All that stays on the screen is in the log file, too, once `log_to` has named it.
    """

    def __init__(self, console: Console, label: str, total_steps: int) -> None:
        self._console = console
        self._live = console.is_terminal and not console.quiet
        self._total = total_steps
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(label, total=total_steps)
        self._state = Text()
        self._screen = Live(Group(self._bar, self._state), console=console, auto_refresh=False)
        self._loss: float | None = None
        self._evaluation: float | None = None
        self._bar_rate = _Rate(BAR_INTERVAL_S if self._live else LINE_INTERVAL_S)
        self._line_rate = _Rate(LINE_INTERVAL_S)
        self._log: LogFile | None = None
        self._earlier: list[RenderableType] = []  # shown before there was a log file

    def __enter__(self) -> Display:
        if self._live:
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.rest()
        if self._log:
            with contextlib.suppress(OSError):  # a full disk: `error` says it
                if kind is not None:
                    self._log.write(f"ended by {kind.__name__}: {error}")
                self._log.close()

    def log_to(self, path: Path) -> None:
        """What was shown and what will be goes to the end of this file; rank 0 calls it."""
        self._log = LogFile(path)
        for shown in self._earlier:
            self._log.write(shown)
        self._earlier = []

    def rest(self) -> None:
        """Takes the bar off the screen: what follows is the end."""
        if self._live:
            self._screen.stop()

    def note(self, message: str) -> None:
        """A line that stays, above the bar, with its brackets."""
        self._console.print(message, highlight=False, markup=False, soft_wrap=True)
        self._write(message)

    def show(self, what: RenderableType) -> None:
        """A table."""
        self._console.print(what)
        self._write(what)

    def log(self, message: str) -> None:
        """A line for the log file alone."""
        self._write(message)

    def loss(self, value: float) -> None:
        self._loss = value

    def evaluation(self, value: float) -> None:
        self._evaluation = value

    def update(self, learner: Learner, *, force: bool = False) -> None:
        clock = time.perf_counter()
        if clock < min(self._bar_rate.due_s, self._line_rate.due_s) and not force:
            return
        if self._live and (force or clock >= self._bar_rate.due_s):
            self._bar.update(self._task, completed=learner.steps)
            self._state.plain = self._words(learner, self._bar_rate, clock)
            self._screen.refresh()
        if force or clock >= self._line_rate.due_s:
            words = self._words(learner, self._line_rate, clock)
            line = f"step {learner.steps:,}/{self._total:,}  {words}"
            if words and not self._live:
                self._console.print(line, highlight=False, soft_wrap=True)
            if words:
                self._write(line)
        if not self._live:
            self._bar_rate.due_s = self._line_rate.due_s

    def _words(self, learner: Learner, rate: _Rate, clock: float) -> str:
        """Of the time since the previous line of this kind; empty for the first."""
        steps, updates = rate.since(learner, clock)
        if not rate.is_known:
            return ""
        samples = updates * learner.config.algo.batch_size * learner.ranks.size
        recent = learner.counters.returns[-10:]
        parts = [f"return {f'{sum(recent) / len(recent):.1f}' if recent else '-'}"]
        if self._evaluation is not None:
            parts.append(f"evaluation {self._evaluation:.1f}")
        parts += [
            f"loss {'-' if self._loss is None else f'{self._loss:.3g}'}{_worth(learner)}",
            f"{steps:,.0f} env steps/s",
            f"{samples:,.0f} samples/s",
            f"replay {len(learner.buffer) / learner.buffer.capacity:.0%}",
        ]
        return "  ".join(parts)

    def _write(self, what: RenderableType) -> None:
        if self._log:
            self._log.write(what)
        elif not self._console.quiet:
            self._earlier.append(what)


def _worth(learner: Learner) -> str:
    """Of a loss: the shards of emulated ranks exist nowhere."""
    job = learner.ranks.job
    is_emulated = job is not None and len(job.real) < job.ranks
    is_made_up = is_emulated and isinstance(learner.config.dist, Fsdp2)
    return " (means nothing: emulated shards)" if is_made_up else ""


class _Rate:
    """Steps and updates a second from one look to the next, and when that one is due."""

    def __init__(self, interval_s: float) -> None:
        self.due_s = 0.0
        self.is_known = False
        self._interval_s = interval_s
        self._seen = (0.0, 0, 0)  # clock, env steps, updates

    def since(self, learner: Learner, clock: float) -> tuple[float, float]:
        c = learner.counters
        before_s, steps, updates = self._seen
        self.due_s = clock + self._interval_s
        self._seen = (clock, c.env_steps, c.updates)
        self.is_known = before_s > 0.0
        passed_s = max(clock - before_s, 1e-9)
        return (c.env_steps - steps) / passed_s, (c.updates - updates) / passed_s
