"""PyTorch by hand: one tensor per column, next_obs stored too, gathered by index_select.

Usage: torch_contestant.py THREADS. On cores that others use too, one thread is often the quicker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from experience import STACK
from numpy_contestant import quickest
from protocol import Contestant, Tensors, serve
from workloads import Workload


class Torch(Contestant):
    def __init__(self, *, threads: int) -> None:
        """threads: within an operation; 0: torch's own choice, one a core."""
        self.name = f"torch_{threads}_thread" if threads else "torch"
        if threads:
            torch.set_num_threads(threads)

    def fill(self) -> None:
        if self.data.is_frames:
            self.columns = {"frames": torch.from_numpy(self.data.observations.copy())}
        else:
            stored = self.data.transitions()
            self.columns = {name: torch.from_numpy(column) for name, column in stored.items()}

    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        return self._fastest(
            self.columns, lambda: torch.randint(0, self.data.num_steps, (work.items,))
        )

    def slices(self, work: Workload) -> Callable[[], Tensors]:
        steps, span = self.data.episode_steps, torch.arange(work.length)
        columns = {name: column for name, column in self.columns.items() if name != "next_obs"}
        count = work.items // work.length

        def rows() -> torch.Tensor:
            episode = torch.randint(0, self.data.num_episodes, (count,))
            first = torch.randint(0, steps - work.length + 1, (count,))
            return ((episode * steps + first)[:, None] + span).reshape(-1)

        return self._fastest(columns, rows)

    def frames(self, work: Workload) -> Callable[[], Tensors]:
        steps = self.data.episode_steps
        frames = self.columns["frames"].reshape(-1, 84, 84)
        out = {
            name: torch.empty((work.items * STACK, 84, 84), dtype=torch.uint8)
            for name in ("obs", "next_obs")
        }
        span = torch.arange(1 - STACK, 1)

        def call() -> Tensors:
            episode = torch.randint(0, self.data.num_episodes, (work.items,))
            last = torch.randint(STACK - 1, steps, (work.items,))
            rows = ((episode * (steps + 1) + last)[:, None] + span).reshape(-1)
            torch.index_select(frames, 0, rows, out=out["obs"])
            torch.index_select(frames, 0, rows + 1, out=out["next_obs"])
            return {name: tensor.view(-1, STACK, 84, 84) for name, tensor in out.items()}

        return call

    def _fastest(
        self, columns: dict[str, torch.Tensor], draw: Callable[[], torch.Tensor]
    ) -> Callable[[], Tensors]:
        """index_select with and without out=, and advanced indexing: whichever is quickest here."""
        rows = len(draw())
        out = {name: col.new_empty((rows, *col.shape[1:])) for name, col in columns.items()}

        def fresh() -> Tensors:
            at = draw()
            return {name: column.index_select(0, at) for name, column in columns.items()}

        def reused() -> Tensors:
            at = draw()
            for name, column in columns.items():
                torch.index_select(column, 0, at, out=out[name])
            return out

        def advanced() -> Tensors:
            at = draw()
            return {name: column[at] for name, column in columns.items()}

        ways = {"index_select": fresh, "index_select(out=)": reused, "tensor[rows]": advanced}
        _, self.variant = quickest(ways)
        return ways[self.variant]


if __name__ == "__main__":
    serve(Torch(threads=int(sys.argv[1])))
