"""TorchRL: ReplayBuffer over a LazyTensorStorage; slices by SliceSampler; stacks stored whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from protocol import Contestant, NotMeasured, Tensors, serve
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.data.replay_buffers import samplers
from workloads import Workload


class TorchRL(Contestant):
    name = "torchrl"
    packages = ("torchrl", "tensordict")

    def fill(self) -> None:
        self.buffer = self._make(samplers.RandomSampler(), 256)

    def _make(self, sampler: samplers.Sampler, batch: int) -> ReplayBuffer:
        storage = LazyTensorStorage(self.data.num_steps)
        buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=batch)
        if self.data.is_frames:
            for obs, next_obs in self.data.stacked_pairs():
                buffer.extend(TensorDict({"obs": obs, "next_obs": next_obs}, [len(obs)]))
        else:
            buffer.extend(TensorDict(self.data.transitions(), [self.data.num_steps]))
        return buffer

    def uniform(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self.buffer
        return lambda: dict(buffer.sample())

    frames = uniform

    def weighted(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._prioritised(work)
        return lambda: dict(buffer.sample())

    def prioritised(self, work: Workload) -> Callable[[], Tensors]:
        buffer = self._prioritised(work)
        priorities = torch.rand(work.items) + 0.01

        def call() -> Tensors:
            batch, info = buffer.sample(return_info=True)
            buffer.update_priority(info["index"], priorities)
            return dict(batch)

        return call

    def _prioritised(self, work: Workload) -> ReplayBuffer:
        if samplers.SumSegmentTreeFp32 is None:
            raise NotMeasured(
                f"its compiled sum tree was built for another torch than {torch.__version__}, and "
                "does not load"
            )
        count = self.data.num_steps
        buffer = self._make(samplers.PrioritizedSampler(count, alpha=0.6, beta=0.4), work.items)
        buffer.update_priority(torch.arange(count), torch.rand(count) + 0.01)
        return buffer

    def slices(self, work: Workload) -> Callable[[], Tensors]:
        """cache_values: the ends of the episodes are looked up once, not in each call."""
        sampler = samplers.SliceSampler(
            num_slices=work.items // work.length, end_key="done", cache_values=True
        )
        stored = self.data.transitions()
        del stored["next_obs"]
        storage = LazyTensorStorage(self.data.num_steps)
        buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=work.items)
        buffer.extend(TensorDict(stored, [self.data.num_steps]))
        return lambda: dict(buffer.sample())

    def insert_single(self, work: Workload) -> Callable[[], Tensors]:
        block = TensorDict(self.data.block(work.items), [work.items])
        steps = [block[k].clone() for k in range(work.items)]

        def call() -> Tensors:
            for step in steps:
                self.buffer.add(step)
            return {}

        return call

    def vector_step(self, work: Workload) -> Callable[[], Tensors]:
        """One extend by many rows, whether of many environments or of one."""
        batch = TensorDict(self.data.block(work.items), [work.items])

        def call() -> Tensors:
            self.buffer.extend(batch)
            return {}

        return call

    extend = vector_step


if __name__ == "__main__":
    serve(TorchRL())
