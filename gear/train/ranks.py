"""The processes that train one set of networks, and what they do together."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

import gear
from gear.distributed import process_life
from gear.distributed.calls import Late, in_time, soon
from gear.distributed.process_life import described
from gear.distributed.timeout import SLICE_S, Limit
from gear.distributed.together import alike, together
from gear.train.interrupt import GOES_ON, Taken
from gear.train.watch import Watch

T = TypeVar("T")

ROLL_CALL_S = 5.0  # for ranks that wait from other moments on to give up, too
MOMENT_S = 1.0  # a rank that closed its connections is gone after that
# A rank that failed stays so long, or until the others of its node have ended: that they name the
# one that failed first, and what rank 0 has said is there for them to read.
LINGER_S = 3.0


class Ranks:
    """This process and its peers in a data-parallel run. With one rank every call costs nothing.

    With NCCL what averages tensors is on the current stream: the host goes on at once, and `check`
    says later what became of it.

    As a context manager: leaving it through an exception does not wait for peers, see `__exit__`.

    Args:
        group: who the peers are.
        device: `"cpu"`, `"cuda"` (the local rank's GPU) or `"cuda:1"`.

    Raises InvalidArgument if a rank cannot have that device.
    """

    def __init__(self, group: gear.Group, device: str = "cpu") -> None:
        self.group = group
        self.rank = group.rank
        self.size = group.size
        self.process_group: dist.ProcessGroup | None = None  # of more than one rank, for torch
        self._watch: Watch | None = None
        self._at_close: list[Callable[[], None]] = []
        self.device = self.together(lambda: _local_device(device, group), "gear train: the device")
        self.backend = ""  # what averages gradients: gloo, nccl, horovod
        if self.size > 1:
            self._connect()

    def _connect(self) -> None:
        """Makes what moves tensors between ranks; collective."""
        group = self.group
        self.backend = _backend(self.exchange(_gpu(self.device)))
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
        if self.size == 1:
            return
        self.check()
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with self._naming_the_missing():
            self._sum(flat)
        flat /= self.size
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(
            list(tensors), [part.view_as(t) for part, t in zip(parts, tensors, strict=True)]
        )

    def joined(self) -> dist.ProcessGroup:
        """`process_group`, made first if there is one rank, which needs it for no other purpose."""
        if self.process_group is None:
            self.backend = _backend([_gpu(self.device)])
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
            self._watch.expect(_OnStream())

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replaces every tensor by that of rank 0."""
        if self.size == 1:
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

    def alike(self, give: Callable[[], dict[str, object]], what: str) -> None:
        """Fails everywhere, as `together` does, unless ``give`` returns the same on all ranks."""
        with self._one_sentence() as noted:
            alike(self.group, lambda: noted.run(give), what)

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
            self._will_leave(error)
            return
        try:
            self.close()
        except BaseException as ended:
            if self.size > 1:
                self._will_leave(ended)
            raise

    def _will_leave(self, error: BaseException) -> None:
        lingers = self.rank == 0 or isinstance(error, gear.TransportError)
        if not isinstance(error, (gear.TransportError, SystemExit)):
            try:
                self.group.fail(f"ended with {described(error)}")
            except gear.InvalidArgument:  # the group is closed already
                lingers = False
        lingers_in = self.group if lingers else None
        atexit.register(_leave, _code(error), lingers_in, error.__traceback__)

    def _join(self) -> dist.ProcessGroup:
        """A process group of torch.distributed for the gradients, whatever launched the ranks."""
        limit = Limit.of(self.group.timeout_s)
        try:
            return _join(
                self.group,
                self.backend,
                lambda call: in_time(limit.end, call, "", self._look_at_others),
            )
        except Late:
            raise RuntimeError(f"no answer within {limit.seconds:g} s") from None

    def _sum(self, flat: Tensor) -> None:
        """Replaces `flat` by its sum over the ranks."""
        work = dist.all_reduce(flat, group=self.process_group, async_op=True)
        if self._watch:
            work.wait()  # the stream, not the host
            self._watch.expect(_OnStream(work))
        else:
            self._wait(work)

    def _send(self, tensor: Tensor) -> None:
        """Replaces `tensor` by that of rank 0."""
        self._wait(dist.broadcast(tensor, 0, group=self.process_group, async_op=True))

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
        if self.backend == "gloo":
            with contextlib.suppress(RuntimeError):
                work.wait(timedelta(seconds=SLICE_S))
        else:
            # wait() of NCCL only makes the stream wait: the next read of a result would then hang.
            until = time.monotonic() + SLICE_S
            while not work.is_completed() and time.monotonic() < until:
                time.sleep(20e-6)
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
            if not concerns(error):
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


class _OnStream:
    """A collective behind which the current stream waits; as watch.Expected.

    work: the collective, where torch gives it out.
    """

    def __init__(self, work: dist.Work | None = None) -> None:
        self._work = work
        self._device = torch.cuda.current_device()
        self._passed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._passed.record()

    def done(self) -> bool:
        # A thread starts with GPU 0 as its own, and would open a context there.
        with torch.cuda.device(self._device):
            return bool(self._passed.query())  # type: ignore[no-untyped-call]

    def failed(self) -> bool:
        if self._work is None:
            return False  # the time-out tells
        # NCCL's error ends the work, not its kernel.
        with torch.cuda.device(self._device):
            return self._work.is_completed() and not self.done()


def leave_unmet(error: BaseException) -> None:
    """Where the ranks did not meet: as `Ranks.__exit__`, for threads that still connect."""
    process_life.last.append(partial(_leave, _code(error), None, error.__traceback__))


def _code(error: BaseException) -> int:
    if isinstance(error, Taken):
        return GOES_ON
    return 130 if isinstance(error, KeyboardInterrupt) else 2


def _leave(code: int, lingers_in: gear.Group | None, _: TracebackType | None) -> None:
    """The trace keeps alive what the frames hold."""
    limit = Limit.of(0.0 if lingers_in is None else LINGER_S)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        while lingers_in and limit.left():
            if len(lingers_in.missing(0.0)) == lingers_in.local_size - 1:
                break
            time.sleep(0.02)
    finally:  # after Ctrl-C, too: else Python's end would go on
        os._exit(code)


def _local_device(device: str, group: gear.Group) -> str:
    """A GPU for each rank of a node where `device` is "cuda"; some launchers show it only that."""
    if not device.startswith("cuda"):
        return device
    here = check_gpus(device)
    if device == "cuda" and group.size > 1:
        device = f"cuda:{group.local_rank % here}"
    if device.startswith("cuda:"):
        torch.cuda.set_device(device)
    return device


def check_gpus(device: str) -> int:
    """How many GPUs are here; InvalidArgument where `device`, a GPU, cannot be used."""
    why = ""
    here = torch.cuda.device_count()
    if not gear._core.build_info()["cuda"]:
        why = (
            "this GEAR was built without CUDA: load the module gear/VERSION-gpu or build with CUDA"
        )
    elif torch.version.cuda is None:
        why = f"torch {torch.__version__} was built without CUDA: install one that has it"
    elif here == 0:
        why = "torch sees no GPU: start where there is one, and look at CUDA_VISIBLE_DEVICES"
    elif device != "cuda" and int(device.split(":")[1]) >= here:
        why = f"torch sees {here} GPU(s): give cuda:0 to cuda:{here - 1}"
    if why:
        raise gear.InvalidArgument(f"[train] device={device}: {why}, or use device=cpu")
    return here


def _gpu(device: str) -> str:
    """What tells this GPU from every other; empty for a CPU."""
    if not device.startswith("cuda"):
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def _backend(gpus: list[str]) -> str:
    """NCCL if every rank has a GPU of its own, which it insists on, else gloo."""
    own = all(gpus) and len(set(gpus)) == len(gpus)
    if not (own and dist.is_nccl_available()):
        return "gloo"
    if not hasattr(dist.ProcessGroup, "abort"):
        raise gear.InvalidArgument(
            f"[train] torch {torch.__version__} cannot end a collective of NCCL after a rank has "
            "died: dist=ddp with a GPU for each rank needs torch 2.6 or later"
        )
    return "nccl"


def _join(
    group: gear.Group, backend: str, in_time: Callable[[Callable[[], Any]], Any]
) -> dist.ProcessGroup:
    """in_time: makes a call of torch's, which waits for the other ranks."""
    # torch's own watch of NCCL would abort the process without a word: Watch is in its place.
    if backend == "nccl":
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    # Of NCCL it is Watch that counts, and says more; gloo's own is what ends DDP's waits.
    timeout = timedelta(seconds=group.timeout_s * (2 if backend == "nccl" else 1))
    made: dist.ProcessGroup | None
    if dist.is_initialized():
        made = in_time(lambda: dist.new_group(backend=backend, timeout=timeout))
        assert made is not None
        return made
    host = "127.0.0.1" if group.num_nodes == 1 else socket.gethostname()
    store, port = None, 0
    if group.rank == 0:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, 0, group.size, True, timeout, wait_for_workers=False
        )
        port = store.port
    host, port = group.exchange([host, port])[0]
    if store is None:
        store = in_time(
            lambda: dist.TCPStore(  # type: ignore[attr-defined]
                host, port, group.size, False, timeout
            )
        )
    in_time(
        lambda: dist.init_process_group(
            backend, store=store, rank=group.rank, world_size=group.size, timeout=timeout
        )
    )
    made = dist.group.WORLD
    assert made is not None
    return made
