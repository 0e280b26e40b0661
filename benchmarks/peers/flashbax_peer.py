"""Flashbax on the CPU, jitted, its state donated; its sequences and pairs know no episode ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flashbax
import jax
import torch
from protocol import Contestant, Tensors, serve
from workloads import Workload


def tensors(tree: dict[str, jax.Array]) -> Tensors:
    return {name: torch.utils.dlpack.from_dlpack(array) for name, array in tree.items()}


class Flashbax(Contestant):
    name = "flashbax"
    packages = ("flashbax", "jax", "jaxlib")

    def fill(self) -> None:
        self.key = jax.random.PRNGKey(0)
        if self.data.is_frames:
            columns: dict[str, Any] = {"obs": self.data.observations.reshape(-1, 84, 84)}
        else:
            columns = self.data.transitions()
        self.columns = {name: jax.numpy.asarray(column) for name, column in columns.items()}
        self.state = self._state(self._trajectories(256, 1), self.columns)

    def _trajectories(self, batch: int, length: int) -> Any:
        return flashbax.make_trajectory_buffer(
            add_batch_size=1,
            sample_batch_size=batch,
            sample_sequence_length=length,
            period=1,
            min_length_time_axis=length,
            max_length_time_axis=len(next(iter(self.columns.values()))),
        )

    def _state(self, buffer: Any, columns: dict[str, Any]) -> Any:
        """A full state that holds the columns."""
        state = buffer.init({name: column[0] for name, column in columns.items()})
        held = {name: column[None] for name, column in columns.items()}
        return state.replace(experience=held, is_full=jax.numpy.array(True))

    def _sampler(self, state: Any, sample: Callable[..., dict[str, Any]]) -> Callable[[], Tensors]:
        draw = jax.jit(lambda state, key: (jax.random.split(key)[0], sample(state, key)))

        def call() -> Tensors:
            self.key, out = draw(state, self.key)
            return tensors(out)

        return call

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._trajectories(work.items, 1)

        def steps(state: Any, key: jax.Array) -> dict[str, jax.Array]:
            return {n: a[:, 0] for n, a in buffer.sample(state, key).experience.items()}

        return self._sampler(self.state, steps)

    def slices(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._trajectories(work.items // work.length, work.length)
        state = self._state(buffer, self._without_next())
        return self._sampler(state, lambda s, k: buffer.sample(s, k).experience)

    def frames(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._trajectories(work.items, 5)

        def pairs(state: Any, key: jax.Array) -> dict[str, jax.Array]:
            frames = buffer.sample(state, key).experience["obs"]
            return {"obs": frames[:, :4], "next_obs": frames[:, 1:]}

        return self._sampler(self.state, pairs)

    def _without_next(self) -> dict[str, Any]:
        return {name: column for name, column in self.columns.items() if name != "next_obs"}

    def weighted(self, work: Workload) -> Callable[[], Tensors]:
        return self._prioritised(work, update=False)

    def prioritised(self, work: Workload) -> Callable[[], Tensors]:
        return self._prioritised(work, update=True)

    def _prioritised(self, work: Workload, *, update: bool) -> Callable[[], Tensors]:
        count = self.data.num_steps
        buffer = flashbax.make_prioritised_flat_buffer(count, 1, work.items, add_sequences=True)
        columns = self._without_next()
        first = {name: column[0] for name, column in columns.items()}
        self.state = buffer.add(buffer.init(first), columns)
        priorities = jax.random.uniform(self.key, (work.items,)) + 0.01

        def step(state: Any, key: jax.Array) -> Any:
            sample = buffer.sample(state, key)
            if update:
                state = buffer.set_priorities(state, sample.indices, priorities)
            pair = sample.experience
            return state, jax.random.split(key)[0], {**pair.first, "next_obs": pair.second["obs"]}

        jitted = jax.jit(step, donate_argnums=0)

        def call() -> Tensors:
            self.state, self.key, out = jitted(self.state, self.key)
            return tensors(out)

        return call

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        return self._inserter(self.data.single_steps(work.items), add_sequences=False)

    def extend(self, work: Workload) -> Callable[[], Tensors]:
        return self._inserter([self.data.block(work.items)], add_sequences=True)

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """A row of the trajectory buffer an environment, and one add of a step to each row."""
        buffer = flashbax.make_trajectory_buffer(
            add_batch_size=work.items,
            sample_batch_size=1,
            sample_sequence_length=1,
            period=1,
            min_length_time_axis=1,
            max_size=self.data.num_steps,
        )
        step = {name: column[:, None] for name, column in self.data.block(work.items).items()}
        add = jax.jit(buffer.add, donate_argnums=0)
        self.state = buffer.init({name: column[0, 0] for name, column in step.items()})

        def call() -> Tensors:
            self.state = add(self.state, step)
            jax.block_until_ready(self.state)  # type: ignore[no-untyped-call]
            return {}

        return call

    def _inserter(self, pieces: list[Any], *, add_sequences: bool) -> Callable[[], Tensors]:
        buffer = flashbax.make_item_buffer(self.data.num_steps, 1, 1, add_sequences=add_sequences)
        add = jax.jit(buffer.add, donate_argnums=0)
        self.state = self._state(buffer, {n: c.copy() for n, c in self.columns.items()})

        def call() -> Tensors:
            for piece in pieces:
                self.state = add(self.state, piece)
            jax.block_until_ready(self.state)  # type: ignore[no-untyped-call]
            return {}

        return call


if __name__ == "__main__":
    serve(Flashbax())
