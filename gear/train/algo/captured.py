"""Work on tensors of fixed shapes, launched on a GPU by one call of the host: a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

import gear

WARM_UP = 3  # calls; kernels are loaded, workspaces and optimiser states made at the first ones

Work = Callable[[], None]


class Recorder(Protocol):
    """Runs work, and records it to be played again."""

    def run(self, work: Work) -> None: ...

    def record(self, work: Work) -> Work:
        """What does on the device what `work` would do; `work` is called and computes nothing."""
        ...


class Captured:
    """A function of tensors whose kernels are recorded once and then launched all together.

    The first WARM_UP calls run the function; then it is recorded, which computes nothing, and
    played from there on. So each call computes the same once, captured or not, and torch's
    generator gives it the same numbers.

    function: works on tensors alone, of the same shapes in every call: what it counts or decides in
        Python happens only while it is recorded. What it reads besides its arguments and what it
        writes stays where it is.
    """

    def __init__(self, function: Callable[..., Tensor], recorder: Recorder) -> None:
        self._function = function
        self._recorder = recorder
        self._given: list[Tensor] = []
        self._result = torch.empty(0)
        self._calls = 0
        self._play: Work | None = None

    def __call__(self, *given: Tensor) -> Tensor:
        """The function's result, which no later call changes."""
        if self._calls == 0:
            self._given = [torch.empty_like(tensor) for tensor in given]
        torch._foreach_copy_(self._given, given)
        if self._calls < WARM_UP:
            self._recorder.run(self._work)
        else:
            if self._play is None:
                self._play = self._recorder.record(self._work)
            self._play()
        self._calls += 1
        return self._result.clone()

    def _work(self) -> None:
        self._result = self._function(*self._given)


class CudaGraphs:
    """Records on a stream of its own; plays on the current one."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def run(self, work: Work) -> None:
        # Autograd remembers the stream on which a parameter was first used: the one that records.
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            work()
        current.wait_stream(self._stream)

    def record(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        try:
            # Loaders' threads go on meanwhile.
            with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise gear.CudaError(
                f"[train] the update cannot be captured as a CUDA graph: {reason}: "
                "run it with algo.compile=off"
            ) from error
        # Before it captures, torch resets where the graph's random numbers begin, on the stream
        # that records; each replay sets the same on its own stream, and must come after.
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph.replay


def compiled(
    function: Callable[..., Tensor], *, wish: str, device: torch.device, obstacle: str
) -> tuple[Callable[..., Tensor], str]:
    """The function as `algo.compile` wants it run, and in words what was chosen and why.

    wish: `auto` captures where that is possible, `off` never.
    obstacle: why it cannot be captured; empty: it can.
    """
    if wish == "auto" and device.type == "cuda" and not obstacle:
        return Captured(function, CudaGraphs()), "one launch each, captured as a CUDA graph"
    if wish == "off":
        why = "algo.compile=off"
    else:
        why = obstacle if device.type == "cuda" else "a CPU has nothing to capture"
    return function, f"not captured: {why}"
