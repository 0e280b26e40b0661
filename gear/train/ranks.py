"""The processes that train one set of networks, and what they do together."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

import gear
from gear.distributed.calls import Late, in_time, soon
from gear.distributed.launch import Launch, find_launch
from gear.distributed.meeting_point import decline
from gear.distributed.process_life import described
from gear.distributed.timeout import SLICE_S, Limit
from gear.distributed.together import alike, together
from gear.train.config import Ddp, Place
from gear.train.watch import Watch

T = TypeVar("T")

ROLL_CALL_S = 5.0  # for ranks that wait from other moments on to give up, too
MOMENT_S = 1.0  # a rank that closed its connections is gone after that
# A rank that failed stays so long, or until the others of its node have ended: that they name the
# one that failed first, and what rank 0 has said is there for them to read.
LINGER_S = 3.0


def decline_for(words: Mapping[str, object], error: Exception) -> None:
    """Before the ranks have met: tells the others of this launch the error that keeps this process
    from coming, so that they end at once.

    words: rank, world_size, dist.master_addr and dist.master_port where they are given by hand.
    """
    try:
        if words.get("world_size") is None:
            launch = find_launch(os.environ, lambda package: find_spec(package) is not None)
        else:
            launch = Launch(
                "environment",
                int(str(words["rank"])),
                int(str(words["world_size"])),
                "torch",
                str(words.get("dist.master_addr", "127.0.0.1")),
                int(str(words.get("dist.master_port", 29500))),
            )
    except (KeyError, ValueError):
        return  # nothing tells who the others are
    decline(launch, str(error))


def start_ranks(place: Place) -> Ranks:
    """The ranks that the group `dist` asks for; waits for all of them.

    Raises InvalidArgument if several processes were started and would train apart or a rank has not
    the device, TransportError if one does not come.
    """
    launch = find_launch(os.environ, lambda package: find_spec(package) is not None)
    by_hand = place.world_size is not None
    if not isinstance(place.dist, Ddp):
        size = place.world_size if by_hand else launch.size
        if size != 1:
            who = "rank= and world_size= say" if by_hand else f"{launch.launcher} says"
            raise gear.InvalidArgument(
                f"[train] {who} that this is one of {size or 'several'} processes, and each would "
                "train by itself: add dist=ddp, or start one process"
            )
        return Ranks.single(place.device)
    if by_hand:
        own = {"RANK": place.rank, "WORLD_SIZE": place.world_size}
        master = {"MASTER_ADDR": place.dist.master_addr, "MASTER_PORT": place.dist.master_port}
        os.environ.update({name: str(value) for name, value in {**own, **master}.items()})
    return Ranks(gear.Group.from_env(timeout_s=place.dist.timeout_s), place.device)


class Ranks:
    """This process and its peers in a data-parallel run. With one rank every call costs nothing.

    Gradients are averaged in one all-reduce per optimiser step (`average`), between backward and
    step: exact for any number of networks, losses and optimisers, where DistributedDataParallel
    would wrap each network's forward pass, which actor-critic methods call several times per
    backward pass and also without gradients. What DDP gains by overlapping the reduction with the
    backward pass is small for networks of this size. With NCCL the all-reduce is on the current
    stream: the host goes on at once, and `check` says later what became of it.

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
        self._process_group: dist.ProcessGroup | None = None
        self._watch: Watch | None = None
        self.device = self.together(lambda: _local_device(device, group), "gear train: the device")
        self.backend = ""  # what averages gradients: gloo, nccl
        if self.size > 1:
            self.backend = _backend(self.exchange(_gpu(self.device)))
            try:
                with group.doing("gear train: joining"), self._naming_the_missing():
                    self._process_group = joined = self._join()
            except BaseException as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise
            if self.backend == "nccl":
                self._watch = Watch(
                    lambda: group.missing(0.0), joined.abort, timeout_s=group.timeout_s
                )

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
            work = dist.all_reduce(flat, group=self._process_group, async_op=True)
            if self._watch:
                work.wait()  # the stream, not the host
                self._watch.expect(_OnStream(work))
            else:
                self._wait(work)
        flat /= self.size
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        torch._foreach_copy_(
            list(tensors), [part.view_as(t) for part, t in zip(parts, tensors, strict=True)]
        )

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replaces every tensor by that of rank 0."""
        if self.size == 1:
            return
        with self._naming_the_missing(), torch.no_grad():
            for tensor in tensors:
                same = tensor.contiguous()
                self._wait(dist.broadcast(same, 0, group=self._process_group, async_op=True))
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

    def close(self) -> None:
        """Ends the connections; collective."""
        if self.size > 1:
            self.barrier()
            if self._watch:
                self._watch.close()
            dist.destroy_process_group(self._process_group)
            # Ends gloo's threads with it: one that still held a tensor when the interpreter ends
            # would end the process by SIGABRT.
            self._process_group = None
            self.group.close()

    # ---- when a rank is gone ----

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes; after an exception it leaves that to the end of the process.

        A loader's thread, a collective or a communicator may then wait for a peer that is gone.
        Whoever catches the exception has its say; when Python ends, the process does, at once, and
        runs no destructor that would wait.
        """
        if kind is None:
            self.close()
        elif self.size > 1:
            if error is not None and not isinstance(error, (gear.TransportError, SystemExit)):
                self.group.fail(f"ended with {described(error)}")
            code = 130 if issubclass(kind, KeyboardInterrupt) else 2
            lingers = self.rank == 0 or issubclass(kind, gear.TransportError)
            # The trace keeps alive what the frames hold.
            atexit.register(_leave, code, self.group if lingers else None, trace)

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

    def _wait(self, work: dist.Work) -> None:
        """Waits for a collective; a peer that has ended, or has told why it will, ends the wait
        before the time-out does."""
        limit = Limit.of(self.group.timeout_s)
        while not self._is_done_soon(work):
            self._look_at_others()
            if not limit.left():
                raise RuntimeError(f"no answer within {limit.seconds:g} s")
        work.wait()

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
    def _naming_the_missing(self) -> Iterator[None]:
        """torch says which socket was closed; this says which rank has ended."""
        try:
            yield
        except gear.GearError:
            raise
        except RuntimeError as error:
            if self.backend == "gloo" and self._process_group is not None:
                # Ranks that wait for this one learn of it by the closed connection. That of a rank
                # which hangs is closed at gloo's own time-out, which nobody waits for.
                traceback.clear_frames(error.__traceback__)  # the work holds connections, too
                held = [self._process_group]
                self._process_group = None
                soon(lambda: dist.destroy_process_group(held.pop()), MOMENT_S)
            # A process that is ending closes its connections a moment before it is gone.
            until = time.monotonic() + MOMENT_S
            while not self.group.missing(0.0) and time.monotonic() < until:
                self.group.look()
                time.sleep(0.02)
            raise self.group.lost(error, ROLL_CALL_S) from error


class _Noted:
    """Whether what was run here is what failed."""

    failed = False

    def run(self, work: Callable[[], T]) -> T:
        self.failed = True
        result = work()
        self.failed = False
        return result


class _OnStream:
    """A collective behind which the current stream waits; as watch.Expected."""

    def __init__(self, work: dist.Work) -> None:
        self._work = work
        self._device = torch.cuda.current_device()
        self._passed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._passed.record()

    def done(self) -> bool:
        # A thread starts with GPU 0 as its own, and would open a context there.
        with torch.cuda.device(self._device):
            return bool(self._passed.query())  # type: ignore[no-untyped-call]

    def failed(self) -> bool:
        # NCCL's error ends the work, not its kernel.
        with torch.cuda.device(self._device):
            return self._work.is_completed() and not self.done()


def _leave(code: int, lingers_in: gear.Group | None, _: TracebackType | None) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    limit = Limit.of(0.0 if lingers_in is None else LINGER_S)
    while lingers_in and limit.left() and len(lingers_in.missing(0.0)) < lingers_in.local_size - 1:
        time.sleep(0.02)
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
    timeout = timedelta(seconds=2 * group.timeout_s)
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
