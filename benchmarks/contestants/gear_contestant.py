"""GEAR: one copy of each observation; next_obs, stacks and sequences are windows.

Usage: gear_contestant.py default_pages | episode_pages

Pages are of the default number of steps, or each holds a whole episode, which a user can choose
where all episodes are of one length.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np
import torch
from experience import STACK
from protocol import Contestant, Tensors, serve
from workloads import Workload

import gear
from gear.buffer import default_page_steps

TRANSITION = {
    "obs": gear.Step(0),
    "next_obs": gear.Step(1, column="obs"),
    "action": gear.Step(0),
    "reward": gear.Step(0),
    "done": gear.Step(0),
}
PRIORITISED = gear.Weighted(alpha=0.6, beta=0.4)


class Gear(Contestant):
    """episode_pages: a page holds all of an episode and its closing step."""

    def __init__(self, *, episode_pages: bool) -> None:
        self.name = "gear_episode_pages" if episode_pages else "gear"
        self.episode_pages = episode_pages

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "gear": gear.__version__}

    def fill(self) -> None:
        data = self.data
        self.buffer = self._make(data.num_episodes)
        steps = self.buffer.page_steps
        held = "an episode" if self.episode_pages else f"{steps} step{'s' if steps > 1 else ''}"
        self.setting = f"pages of {held}"
        rng = np.random.default_rng(2)
        with self.buffer.writer() as writer:
            for e in range(data.num_episodes):
                priority = rng.random(data.episode_steps).astype(np.float32) + 0.01
                writer.extend(priority=priority, **data.episode(e))
                writer.end_episode(terminated=True, final={"obs": data.observations[e, -1]})
        assert len(self.buffer) == data.num_steps
        self.loader: gear.Loader | None = None

    def _make(self, num_episodes: int) -> gear.ReplayBuffer:
        """An empty buffer with room for so many episodes, each with its closing step."""
        data = self.data
        columns = [gear.Column("obs", data.observations.shape[2:], str(data.observations.dtype))]
        if not data.is_frames:
            columns += [gear.Column("action", (6,)), gear.Column("reward")]
            columns += [gear.Column("done", (), "bool")]
        schema, stored = gear.Schema(columns), data.episode_steps + 1
        if self.episode_pages:
            return gear.ReplayBuffer(schema, num_episodes * stored, page_steps=stored)
        page = default_page_steps(schema.step_bytes, num_episodes * stored)
        return gear.ReplayBuffer(schema, num_episodes * -(-stored // page) * page)

    def nbytes(self) -> int:
        return int(self.buffer.nbytes)

    def close(self) -> None:
        if self.loader is not None:
            self.loader.close()
        self.loader = None

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        return self._sample(work.items, gear.Uniform(), TRANSITION)

    def weighted(self, work: Workload) -> Callable[[], Tensors]:
        return self._sample(work.items, PRIORITISED, TRANSITION)

    def prioritised(self, work: Workload) -> Callable[[], Tensors]:
        self._sample(work.items, PRIORITISED, TRANSITION)
        loader, update = self.loader, self.buffer.update
        assert loader is not None
        priorities = torch.rand(work.items) + 0.01

        def call() -> Tensors:
            batch = next(loader)
            update(batch.ids, priorities)
            return batch

        return call

    def slices(self, work: Workload) -> Callable[[], Tensors]:
        """Uniform over all steps, so a sequence may end early with its episode: only what is there
        counts as delivered."""
        window = gear.Window(0, work.length)
        self.delivered = 1 - (work.length - 1) / 2 / self.data.episode_steps
        outputs = dict.fromkeys(("obs", "action", "reward", "done"), window)
        return self._sample(work.items // work.length, gear.Uniform(), outputs)

    def frames(self, work: Workload) -> Callable[[], Tensors]:
        outputs = {
            "obs": gear.Window(1 - STACK, 1),
            "next_obs": gear.Window(2 - STACK, 2, column="obs"),
        }
        return self._sample(work.items, gear.Uniform(), outputs)

    def _sample(
        self, rows: int, sampler: gear.Sampler, outputs: Mapping[str, gear.Step | gear.Window]
    ) -> Callable[[], Tensors]:
        self.loader = self.buffer.loader(rows, sampler=sampler, outputs=outputs, framework="torch")
        return self.loader.__next__

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        """One call is one episode: its appends and its end."""
        columns = self.data.episode(0)
        count = min(work.items, self.data.episode_steps)
        steps = [{name: column[k] for name, column in columns.items()} for k in range(count)]
        self.fill()  # A buffer that no prioritised sampler has used: the rivals keep no weights.
        final = {"obs": self.data.observations[0, count]}
        writer = self.buffer.writer()

        def call() -> Tensors:
            append = writer.append
            for step in steps:
                append(**step)
            writer.end_episode(terminated=True, final=final)
            return {}

        return call

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """One append of all environments. Their episodes end in turn, each after as many steps as
        the stored ones, and their last observations come with the flags."""
        self.buffer = self._make(max(self.data.num_episodes, 2 * work.items))
        block, length = self.data.block(work.items), self.data.episode_steps
        columns = {name: column for name, column in block.items() if name != "next_obs"}
        final = {"obs": block["next_obs"]}
        writer = self.buffer.writer(work.items, autoreset="same_step")
        ends = [np.arange(work.items) % length == at for at in range(length)]
        now = [0]

        def call() -> Tensors:
            writer.append(**columns, terminated=ends[now[0]], final=final)
            now[0] = (now[0] + 1) % length
            return {}

        return call

    def extend(self, work: Workload) -> Callable[[], Tensors]:
        """An episode is four batches and an end."""
        self.fill()
        batch = self.data.block(work.items)
        del batch["next_obs"]
        final = {"obs": self.data.observations[0, -1]}
        writer, batches = self.buffer.writer(), [0]

        def call() -> Tensors:
            writer.extend(**batch)
            batches[0] += 1
            if batches[0] % 4 == 0:
                writer.end_episode(terminated=True, final=final)
            return {}

        return call

    def save(self, work: Workload) -> Callable[[], Tensors]:
        path = str(self.scratch / "checkpoint")

        def call() -> Tensors:
            self.buffer.save(path)
            return {}

        return call

    def load(self, work: Workload) -> Callable[[], Tensors]:
        path = str(self.scratch / "checkpoint")
        self.buffer.save(path)

        def call() -> Tensors:
            gear.ReplayBuffer.load(path).close()
            return {}

        return call


if __name__ == "__main__":
    serve(Gear(episode_pages=sys.argv[1] == "episode_pages"))
