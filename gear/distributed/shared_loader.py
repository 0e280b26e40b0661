"""One loader for several ranks that train on the same batches."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gear.arguments import check_text
from gear.distributed.channels.base import Channel
from gear.distributed.group import Group
from gear.distributed.together import together
from gear.errors import GearError, InvalidArgument, TransportError
from gear.in_process import InProcess

if TYPE_CHECKING:
    from gear.batch import Batch

OF_BATCH = ("ids", "probabilities", "weights")
ALIGNMENT = 64  # of every tensor in a message
LENGTH = struct.Struct("<Q")

# (kind, output): one of OF_BATCH and "", or "data", "lengths", "masks", "cu_seqlens" and a name.
Key = tuple[str, str]


class SharedBatch(InProcess, Mapping[str, Any]):
    """The outputs of a batch that this rank asked for, with ids, weights, masks and lengths.

    It has the attributes of `gear.Batch`. On the rank that owns the loader, the tensors are those
    of the batch. On the others they are in host memory: torch tensors if the loader's are, else
    NumPy arrays.
    """

    __slots__ = ("_outputs", "_tensors", "size")
    _instead = "give its tensors, as in dict(batch), batch.ids and batch.weights"

    def __init__(self, tensors: Mapping[Key, Any], outputs: Sequence[str]) -> None:
        self._tensors = tensors
        self._outputs = tuple(outputs)
        self.size = len(tensors["ids", ""])

    def __getitem__(self, name: str) -> Any:
        return self._tensors["data", name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def ids(self) -> Any:
        """As `gear.Batch.ids`."""
        return self._tensors["ids", ""]

    @property
    def probabilities(self) -> Any:
        """As `gear.Batch.probabilities`."""
        return self._tensors["probabilities", ""]

    @property
    def weights(self) -> Any:
        """As `gear.Batch.weights`."""
        return self._tensors["weights", ""]

    @property
    def masks(self) -> dict[str, Any]:
        """As `gear.Batch.masks`."""
        return self._of("masks")

    @property
    def lengths(self) -> dict[str, Any]:
        """As `gear.Batch.lengths`."""
        return self._of("lengths")

    @property
    def cu_seqlens(self) -> dict[str, Any]:
        """As `gear.Batch.cu_seqlens`."""
        return self._of("cu_seqlens")

    def __repr__(self) -> str:
        return f"SharedBatch(size={self.size}, outputs={list(self._outputs)})"

    def _of(self, kind: str) -> dict[str, Any]:
        return {name: tensor for (of, name), tensor in self._tensors.items() if of == kind}


class SharedLoader(InProcess, Iterator[SharedBatch]):
    """Gives the batches of one rank's loader to all ranks of a group, to each the outputs it wants.

    Use it for the ranks of a tensor-parallel or pipeline-parallel group, which train on one batch:

        group = gear.Group.from_mesh(mesh, "dp")     # mesh: dp x pp
        stage = mesh.get_local_rank("pp")
        loader = None
        if stage == last:                            # the stage that computes the priorities
            buffer = gear.ReplayBuffer(schema, capacity, group=group)
            loader = buffer.loader(256)
        outputs = {0: ["obs"], last: ["action", "reward"]}.get(stage, [])
        for batch in SharedLoader(loader, group.replicas, outputs=outputs):
            ...

    Only the ranks that own a loader store experience: in a mesh, the ranks at one place of the
    other axes form a data-parallel group, and share one buffer. Rows travel from host memory to
    host memory, so let the owner's loader deliver to ``"cpu"``; each rank copies what it receives
    to its GPU. Stages in between may ask for no outputs; they still receive the ids.

    Iterating is collective, and ends on all ranks when the owner's loader does.

    Args:
        loader: the loader, on the one rank that owns it; None on the others.
        replicas: the ranks that share it.
        outputs: names of the outputs that this rank receives; None: all.

    Raises:
        InvalidArgument: no rank or several gave a loader, or the owner's batches lack an output.
    """

    _instead = "make one in each process, over a group of them"

    def __init__(
        self,
        loader: Iterator[Batch] | None,
        replicas: Group,
        *,
        outputs: Sequence[str] | None = None,
    ) -> None:
        self._group = replicas

        def check() -> list[str] | None:
            if isinstance(outputs, str):
                raise InvalidArgument(
                    f"[group] SharedLoader outputs {outputs!r}: a list of names is allowed"
                )
            return None if outputs is None else [check_text("[group] output", n) for n in outputs]

        wish = together(replicas, check, "SharedLoader")
        told = replicas.exchange([loader is not None, wish])
        owners = [rank for rank, (has_loader, _) in enumerate(told) if has_loader]
        if len(owners) != 1:
            raise InvalidArgument(
                f"[group] {len(owners) or 'none'} of the {replicas.size} ranks gave a loader to "
                "SharedLoader: make the loader on exactly one of them, and give None on the others"
            )
        self._owner = owners[0]
        self._wishes: list[list[str] | None] = [wanted for _, wanted in told]
        self._loader = loader
        self._channel: Channel | None = replicas.channel()

    def __iter__(self) -> SharedLoader:
        return self

    def __next__(self) -> SharedBatch:
        """This rank's part of the owner's next batch.

        Raises:
            StopIteration: the owner's loader has ended.
            TransportError: the owner failed, whatever it was, with its message; a rank is missing.
        """
        if self._channel is None:
            raise InvalidArgument("[group] this SharedLoader is closed: make another")
        with self._channel.doing("SharedLoader.next"):
            if self._loader is None:
                return self._receive(self._channel)
            return self._send(self._channel, self._loader)

    def close(self) -> None:
        """Lets go of the owner's loader, which stays open."""
        self._loader = None
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _send(self, channel: Channel, loader: Iterator[Batch]) -> SharedBatch:
        try:
            batch = next(loader)
            wishes = [list(batch) if wish is None else wish for wish in self._wishes]
            unknown = sorted({name for wish in wishes for name in wish} - set(batch))
            if unknown:
                raise InvalidArgument(
                    f"[group] SharedLoader outputs {', '.join(map(repr, unknown))}: the loader "
                    f"delivers {', '.join(map(repr, batch))}"
                )
            own = wishes[self._owner]
            peers = {tuple(w) for rank, w in enumerate(wishes) if rank != self._owner}
            parcels = {wish: _message({}, _tensors_of(batch, wish)) for wish in peers}
            messages = [parcels.get(tuple(wish), bytearray()) for wish in wishes]
        except StopIteration:
            self._deliver(channel, [_message({"end": True}, {})] * self._group.size)
            raise
        except Exception as error:  # whatever it is, the other ranks are waiting
            text = str(error) if isinstance(error, GearError) else _described(error)
            self._deliver(channel, [_message({"error": text}, {})] * self._group.size)
            raise
        self._deliver(channel, messages)
        return SharedBatch(_tensors_of(batch, own), own)

    def _deliver(self, channel: Channel, messages: Sequence[bytearray]) -> None:
        to = [memoryview(message) for message in messages]
        to[self._owner] = memoryview(b"")
        channel.exchange_bytes(to)

    def _receive(self, channel: Channel) -> SharedBatch:
        came = channel.exchange_bytes([memoryview(b"")] * self._group.size)
        header, tensors = _open_message(came[self._owner])
        if header.get("end"):
            raise StopIteration
        if "error" in header:
            raise TransportError(
                f"[transport] {self._group.members[self._owner]} made no batch: {header['error']}"
            )
        return SharedBatch(tensors, [name for kind, name in tensors if kind == "data"])


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _tensors_of(batch: Batch, outputs: Sequence[str]) -> dict[Key, Any]:
    tensors: dict[Key, Any] = {(kind, ""): getattr(batch, kind) for kind in OF_BATCH}
    for name in outputs:
        tensors["data", name] = batch[name]
        tensors["lengths", name] = batch.lengths[name]
        try:
            tensors["masks", name] = batch.masks[name]
        except InvalidArgument:  # a packed batch
            tensors["cu_seqlens", name] = batch.cu_seqlens[name]
    return tensors


# A message: bytes of the header (LENGTH), the header as JSON, then the tensors' bytes, each from a
# multiple of ALIGNMENT on, which the header names.


def _message(header: dict[str, Any], tensors: Mapping[Key, Any]) -> bytearray:
    rows, arrays, end = [], [], 0
    for key, tensor in tensors.items():
        framework, dtype, array = _bytes_of(tensor)
        start = -(-end // ALIGNMENT) * ALIGNMENT
        rows.append([*key, framework, dtype, list(tensor.shape), start, array.nbytes])
        arrays.append((start, array))
        end = start + array.nbytes
    text = json.dumps({**header, "tensors": rows}).encode()
    begin = _begin(len(text))
    message = bytearray(begin + end)
    message[: LENGTH.size] = LENGTH.pack(len(text))
    message[LENGTH.size : LENGTH.size + len(text)] = text
    for start, array in arrays:
        message[begin + start : begin + start + array.nbytes] = array.data
    return message


def _open_message(message: memoryview) -> tuple[dict[str, Any], dict[Key, Any]]:
    (length,) = LENGTH.unpack_from(message)
    header = json.loads(bytes(message[LENGTH.size : LENGTH.size + length]))
    begin = _begin(length)
    tensors: dict[Key, Any] = {}
    for kind, name, framework, dtype, shape, start, num_bytes in header["tensors"]:
        array = np.frombuffer(message, np.uint8, num_bytes, begin + start)
        tensors[kind, name] = _tensor_of(framework, dtype, array).reshape(shape)
    return header, tensors


def _begin(header_bytes: int) -> int:
    return -(-(LENGTH.size + header_bytes) // ALIGNMENT) * ALIGNMENT


def _bytes_of(tensor: Any) -> tuple[str, str, np.ndarray[Any, np.dtype[np.uint8]]]:
    """(framework, dtype, flat bytes) of a tensor."""
    if type(tensor).__module__.partition(".")[0] == "torch":
        import torch

        flat = tensor.detach().cpu().reshape(-1).view(torch.uint8)
        return "torch", str(tensor.dtype).removeprefix("torch."), flat.numpy()
    array = np.ascontiguousarray(tensor).reshape(-1)
    return "numpy", array.dtype.name, array.view(np.uint8)


def _tensor_of(framework: str, dtype: str, array: Any) -> Any:
    if framework == "torch":
        import torch

        return torch.from_numpy(array).view(getattr(torch, dtype))
    return array.view(np.dtype(dtype))
