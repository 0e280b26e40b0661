"""The processes that train one set of networks, and what they do together."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

import gear
import gear.emu
from gear.distributed.calls import Late, in_time, soon
from gear.distributed.timeout import SLICE_S, Limit, done_within
from gear.distributed.together import alike, together
from gear.emu.meeting import BACKEND
from gear.train.ranks.devices import gpu_of, gpus_for, take_device
from gear.train.ranks.leaving import leave_after
from gear.train.ranks.on_stream import OnStream
from gear.train.ranks.torch_group import choose_backend, join
from gear.train.ranks.watch import Watch

T = TypeVar("T")

ROLL_CALL_S = 5.0  # for ranks that wait from other moments on to give up, too
MOMENT_S = 1.0  # a rank that closed its connections is gone after that


class Ranks:
    """This process and its peers in a data-parallel run. With one rank every call costs nothing.

    With NCCL what averages tensors is on the current stream: the host goes on at once, and `check`
    says later what became of it.

    As a context manager: leaving it through an exception does not wait for peers, see `__exit__`.

    Args:
        group: who the peers are.
        device: `"cpu"`, `"cuda"` (the local rank's GPU) or `"cuda:1"`.
        backend: `dist.backend` of the configuration.
        job: the emulated job whose real ranks these are. They share replay and act; gradients are
            averaged over all of its ranks.

    Attributes:
        averaging: how many ranks average gradients.

    Raises InvalidArgument if a rank cannot have that device or backend.
    """

    def __init__(
        self,
        group: gear.Group,
        device: str = "cpu",
        backend: str = "auto",
        job: gear.emu.Job | None = None,
    ) -> None:
        self.group = group
        self.rank = group.rank
        self.size = group.size
        self.job = job
        self.averaging = job.ranks if job else group.size
        self.process_group: dist.ProcessGroup | None = None  # of more than one rank, for torch
        self._watch: Watch | None = None
        self._at_close: list[Callable[[], None]] = []
        told = self.alike(
            lambda: {"[gpus]": gpus_for(device, self.size)}, "[train] gear train: the device"
        )
        self.device = take_device(device, group, [rank["[gpus]"] for rank in told])
        self.backend = ""  # what averages gradients: gloo, nccl, gear_mpi, horovod
        self._wanted = backend
        if self.averaging > 1:
            self._connect()

    def _connect(self) -> None:
        """Makes what moves tensors between ranks; collective."""
        group = self.group
        gpus = self.exchange(gpu_of(self.device))
        self.backend = self.together(lambda: choose_backend(gpus, self._wanted, self.job))
        try:
            with group.doing("gear train: joining"), self._naming_the_missing():
                self.process_group = joined = self._join()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        if self.backend == "nccl":
            self._watch = Watch(lambda: group.missing(0.0), joined.abort, timeout_s=group.timeout_s)

    def device_name(self) -> str:
        """`"cpu"`, or what the GPU is called."""
        if self.device.startswith("cuda"):
            return torch.cuda.get_device_name(self.device)
        return self.device

    @staticmethod
    def single(device: str = "cpu") -> Ranks:
        return Ranks(gear.Group.single(), device)

    def moves_by_nccl(self, transport: str) -> bool:
        """Whether batches between nodes go by NCCL, for `dist.transport`."""
        if transport == "auto":
            return self.backend == "nccl" and self.group.num_nodes > 1
        return transport == "nccl"

    # ---- together: every rank calls these at the same places ----

    def exchange(self, value: T) -> list[T]:
        """The value of every rank, by rank. JSON-able and small."""
        self.check()
        return self.group.exchange(value) if self.size > 1 else [value]

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self.check()
        if self.size > 1:
            self.group.barrier()

    def check(self) -> None:
        """Raises TransportError if a GPU has waited for peers in vain: what it computed since is of
        no use. Costs nothing; not collective."""
        if self._watch and self._watch.reason:
            raise self.group.lost(RuntimeError(self._watch.reason))

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces every tensor by its mean over the ranks, bit-equal on all of them.

        On GPUs of their own the means are there for the stream, not yet for the host.
        """
        if self.averaging == 1:
            return
        self.check()
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with self._naming_the_missing():
            self._sum(flat)
        flat /= self.averaging
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(
            list(tensors), [part.view_as(t) for part, t in zip(parts, tensors, strict=True)]
        )

    def joined(self) -> dist.ProcessGroup:
        """`process_group`, made first if there is one rank, which needs it for no other purpose."""
        if self.process_group is None:
            self.backend = choose_backend([gpu_of(self.device)], self._wanted, self.job)
            self.process_group = self._join()
        return self.process_group

    @contextlib.contextmanager
    def torch_collectives(self) -> Iterator[None]:
        """Around calls by which torch itself moves tensors over `process_group`: an error in that
        names the rank that has ended, any other passes. With NCCL the current stream, not the host,
        waits for the tensors."""
        self.check()
        with self._naming_the_missing(_is_of_transport):
            yield
        if self._watch:
            self._watch.expect(OnStream())

    def times_of_first(self, few: int) -> float:
        """How many times the ranks that average are as many as the first `few` and their copies."""
        if self.job is None:
            return self.size / few
        copies, more = divmod(self.averaging - self.size, self.size)
        return self.averaging / (few * (1 + copies) + min(few, more))

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replaces every tensor by that of rank 0."""
        if self.averaging == 1:
            return
        with self._naming_the_missing(), torch.no_grad():
            for tensor in tensors:
                same = tensor.contiguous()
                self._send(same)
                tensor.copy_(same)

    def together(self, work: Callable[[], T], what: str = "gear train") -> T:
        """The result of `work`, which itself waits for no other rank; `what` it is, for messages.

        If it fails anywhere it fails everywhere: the first rank that it failed on raises its error,
        the others SystemExit, so that the user reads one sentence.
        """
        with self._one_sentence() as noted:
            return together(self.group, lambda: noted.run(work), what)

    def alike(self, give: Callable[[], dict[str, Any]], what: str) -> list[dict[str, Any]]:
        """What ``give`` returned on every rank. Fails everywhere, as `together` does, unless it
        is the same on all but for keys in brackets."""
        with self._one_sentence() as noted:
            return alike(self.group, lambda: noted.run(give), what)

    @contextlib.contextmanager
    def _one_sentence(self) -> Iterator[_Noted]:
        self.check()
        noted = _Noted()
        try:
            yield noted
        except gear.TransportError:
            raise
        except Exception:
            failed = self.exchange(noted.failed)
            first = failed.index(True) if any(failed) else 0  # what they give differs
            if first != self.rank:
                raise SystemExit(2) from None
            raise

    def at_close(self, work: Callable[[], None]) -> None:
        """Has `close` call `work` before it ends torch's process group: for a library that keeps it
        beyond this run, and would use it in the next run of this process."""
        self._at_close.append(work)

    def close(self) -> None:
        """Ends the connections; collective."""
        if self.size > 1:
            self.barrier()
        if self._watch:
            self._watch.close()
        while self._at_close:
            self._at_close.pop()()
        if self.process_group is not None:
            dist.destroy_process_group(self.process_group)
            # Ends gloo's threads with it: one that still held a tensor when the interpreter ends
            # would end the process by SIGABRT.
            self.process_group = None
        if self.size > 1:
            self.group.close()

    # ---- when a rank is gone ----

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        """Closes; after an exception it leaves that to the end of the process.

        A loader's thread, a collective or a communicator may then wait for a peer that is gone.
        Whoever catches the exception has its say; when Python ends, the process does, at once, and
        runs no destructor that would wait.
        """
        if error is not None and self.size > 1:
            leave_after(error, self.group)
            return
        try:
            self.close()
        except BaseException as ended:
            if self.size > 1:
                leave_after(ended, self.group)
            raise

    def _join(self) -> dist.ProcessGroup:
        """A process group of torch.distributed for the gradients, whatever launched the ranks."""
        limit = Limit.of(self.group.timeout_s)
        try:
            return join(
                self.group,
                self.backend,
                lambda call: in_time(limit.end, call, "", self._look_at_others),
                self.job,
            )
        except Late:
            raise RuntimeError(f"no answer within {limit.seconds:g} s") from None

    def _sum(self, flat: Tensor) -> None:
        """Replaces `flat` by its sum over the ranks."""
        work = dist.all_reduce(flat, group=self.process_group, async_op=True)
        if self._watch:
            work.wait()  # the stream, not the host
            self._watch.expect(OnStream(work))
        else:
            self._wait(work)

    def _send(self, tensor: Tensor) -> None:
        """Replaces `tensor` by that of rank 0."""
        first = self.job.real[0] if self.job else 0
        self._wait(dist.broadcast(tensor, first, group=self.process_group, async_op=True))

    def _wait(self, work: dist.Work) -> None:
        """Waits for a collective; a peer that has ended, or has told why it will, ends the wait
        before the time-out does."""
        self._wait_for(lambda: self._is_done_soon(work))
        work.wait()

    def _wait_for(self, is_done: Callable[[], bool]) -> None:
        limit = Limit.of(self.group.timeout_s)
        while not is_done():
            self._look_at_others()
            if not limit.left():
                raise RuntimeError(f"no answer within {limit.seconds:g} s")

    def _look_at_others(self) -> None:
        self.group.look()
        if self.group.missing(0.0):
            raise RuntimeError("a rank has ended")

    def _is_done_soon(self, work: dist.Work) -> bool:
        """Whether `work` is done, well or not, within SLICE_S."""
        if self.backend in ("gloo", BACKEND):
            with contextlib.suppress(RuntimeError):
                work.wait(timedelta(seconds=SLICE_S))
        else:
            # wait() of NCCL only makes the stream wait: the next read of a result would then hang.
            done_within(SLICE_S, work.is_completed)
        return bool(work.is_completed())

    @contextlib.contextmanager
    def _naming_the_missing(
        self, concerns: Callable[[RuntimeError], bool] = lambda _: True
    ) -> Iterator[None]:
        """torch says which socket was closed; this says which rank has ended."""
        try:
            yield
        except gear.GearError:
            raise
        except RuntimeError as error:
            if not concerns(error) or self.size == 1:  # of an emulated job, which has said it
                raise
            if self.backend == "gloo" and self.process_group is not None:
                # Ranks that wait for this one learn of it by the closed connection. That of a rank
                # which hangs is closed at gloo's own time-out, which nobody waits for.
                traceback.clear_frames(error.__traceback__)  # the work holds connections, too
                held = [self.process_group]
                self.process_group = None
                soon(lambda: dist.destroy_process_group(held.pop()), MOMENT_S)
            # A process that is ending closes its connections a moment before it is gone.
            until = time.monotonic() + MOMENT_S
            while not self.group.missing(0.0) and time.monotonic() < until:
                self.group.look()
                time.sleep(0.02)
            raise self.group.lost(error, ROLL_CALL_S) from error


def _is_of_transport(error: RuntimeError) -> bool:
    """Gloo's errors have no class of their own: they name its source."""
    kind = type(error).__name__  # Horovod's is not imported for this
    of_torch = isinstance(error, dist.DistError) or "gloo" in str(error)
    return of_torch or kind == "HorovodInternalError"


class _Noted:
    """Whether what was run here is what failed."""

    failed = False

    def run(self, work: Callable[[], T]) -> T:
        self.failed = True
        result = work()
        self.failed = False
        return result
