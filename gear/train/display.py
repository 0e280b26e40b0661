"""What a run shows while it works: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from gear.train.loop import Learner

BAR_INTERVAL_S = 0.25
LINE_INTERVAL_S = 10.0


class Display:
    """Context manager around a run; `update` costs a clock read unless something is due."""

    def __init__(self, console: Console, label: str, total_steps: int) -> None:
        self._console = console
        self._live = console.is_terminal
        self._interval_s = BAR_INTERVAL_S if self._live else LINE_INTERVAL_S
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
        self._due_s = 0.0
        self._seen = (0.0, 0, 0)  # clock, env steps, updates at the last refresh

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
        if self._live:
            self._screen.stop()

    def note(self, message: str) -> None:
        """A line that stays, above the bar."""
        self._console.print(message, highlight=False, soft_wrap=True)

    def loss(self, value: float) -> None:
        self._loss = value

    def update(self, learner: Learner, *, force: bool = False) -> None:
        clock = time.perf_counter()
        if clock < self._due_s and not force:
            return
        self._due_s = clock + self._interval_s
        c = learner.counters
        before_s, before_steps, before_updates = self._seen
        self._seen = (clock, c.env_steps, c.updates)
        if before_s == 0.0:
            return
        per_s = 1.0 / (clock - before_s)
        samples = (c.updates - before_updates) * learner.config.algo.batch_size * learner.ranks.size
        recent = c.returns[-10:]
        state = (
            f"return {f'{sum(recent) / len(recent):.1f}' if recent else '-'}  "
            f"loss {'-' if self._loss is None else f'{self._loss:.3g}'}  "
            f"{(c.env_steps - before_steps) * per_s:,.0f} env steps/s  "
            f"{samples * per_s:,.0f} samples/s  "
            f"replay {len(learner.buffer) / learner.buffer.capacity:.0%}"
        )
        if self._live:
            self._bar.update(self._task, completed=c.env_steps)
            self._state.plain = state
            self._screen.refresh()
        else:
            self.note(f"step {c.env_steps:,}/{self._total:,}  {state}")
