"""GEAR: one copy of each observation; next_obs, stacks and sequences are windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from experience import STACK
from protocol import Contestant, Tensors, serve
from workloads import Workload

import gear

TRANSITION = {
    "obs": gear.Step(0),
    "next_obs": gear.Step(1, column="obs"),
    "action": gear.Step(0),
    "reward": gear.Step(0),
    "done": gear.Step(0),
}
PRIORITISED = gear.Weighted(alpha=0.6, beta=0.4)


class Gear(Contestant):
    name = "gear"

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "gear": gear.__version__}

    def fill(self) -> None:
        data = self.data
        columns = [gear.Column("obs", data.observations.shape[2:], str(data.observations.dtype))]
        if not data.is_frames:
            columns += [gear.Column("action", (6,)), gear.Column("reward")]
            columns += [gear.Column("done", (), "bool")]
        page = data.episode_steps + 1  # all episodes are of one length: a page holds one whole
        self.buffer = gear.ReplayBuffer(
            gear.Schema(columns), data.num_episodes * page, page_steps=page
        )
        rng = np.random.default_rng(2)
        with self.buffer.writer() as writer:
            for e in range(data.num_episodes):
                priority = rng.random(data.episode_steps).astype(np.float32) + 0.01
                writer.extend(priority=priority, **data.episode(e))
                writer.end_episode(terminated=True, final={"obs": data.observations[e, -1]})
        assert len(self.buffer) == data.num_steps
        self.loader: gear.Loader | None = None

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

    def insert_batch(self, work: Workload) -> Callable[[], Tensors]:
        """Episodes of 1024 steps: four batches and an end."""
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
    serve(Gear())
