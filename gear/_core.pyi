"""
The C++ core of GEAR. Use the classes of the package `gear`; these may change.
"""

from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions

__all__: list[str] = [
    "Batch",
    "CHECKPOINT_FORMAT",
    "Collector",
    "FabricPlace",
    "Failure",
    "LoaderOptions",
    "LoneDraw",
    "Peers",
    "Shard",
    "SharedRoom",
    "Traffic",
    "Transport",
    "VectorWriter",
    "Writer",
    "build_info",
    "collect_ids",
    "describe_schema",
    "devices",
    "driver_version",
    "emulated_transport",
    "environment",
    "fabric_port",
    "fabric_transport",
    "first_exchange",
    "group_transport",
    "inspect",
    "link_speeds",
    "load",
    "load_share",
    "loopback_transports",
    "made_up_name",
    "measure_bandwidth",
    "mpi_transport",
    "parse_device",
    "raise_as",
    "runtime_version",
    "save",
    "send_log_to",
    "shared_memory_transport",
    "verbs_port",
    "verbs_transport",
    "version",
]

class Shard:
    def __init__(
        self,
        columns: collections.abc.Sequence[
            tuple[str, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], str]
        ],
        *,
        capacity: typing.SupportsInt | typing.SupportsIndex,
        page_steps: typing.SupportsInt | typing.SupportsIndex,
        tier: str,
        name: str,
        evict: str,
        max_times_sampled: typing.SupportsInt | typing.SupportsIndex,
        owner: typing.SupportsInt | typing.SupportsIndex,
        rate_limit: tuple[
            typing.SupportsFloat | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsFloat | typing.SupportsIndex,
        ]
        | None,
    ) -> None: ...
    def episodes(self) -> list: ...
    def pass_seed_numbers(self, below: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def priorities(
        self, ids: typing.Annotated[numpy.typing.ArrayLike, numpy.int64]
    ) -> numpy.typing.NDArray[numpy.float32]: ...
    def set_rate_limit(
        self,
        rate_limit: tuple[
            typing.SupportsFloat | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsFloat | typing.SupportsIndex,
        ]
        | None,
    ) -> None: ...
    def stats(self) -> dict: ...
    def take_seed_number(self) -> int: ...
    def update(
        self,
        ids: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        priorities: typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
    ) -> int: ...
    def update_at(
        self,
        ids: typing.SupportsInt | typing.SupportsIndex,
        priorities: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
    ) -> int: ...
    def update_from_device(
        self,
        ids: typing.SupportsInt | typing.SupportsIndex,
        priorities: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
        stream: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    @property
    def capacity(self) -> int: ...
    @property
    def columns(self) -> list: ...
    @property
    def forked(self) -> bool:
        """
        Whether this is a copy, in a forked child of the process that made it.
        """
    @property
    def identity(self) -> int: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def num_episodes(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def page_steps(self) -> int: ...

class Writer:
    def __init__(
        self, shard: Shard, episode: typing.SupportsInt | typing.SupportsIndex | None = None
    ) -> None: ...
    def _close(self) -> tuple[int, int] | None:
        """
        Ends an open episode, and returns its number and steps.
        """
    def _end_episode(
        self,
        terminated: bool,
        weight: typing.SupportsFloat | typing.SupportsIndex | None,
        final: dict | None,
    ) -> None: ...
    def _set_timeout(
        self, timeout_s: typing.SupportsFloat | typing.SupportsIndex | None
    ) -> None: ...
    def append(self, **kwargs) -> None:
        """
        Appends one step: every column of the schema by name, and optionally `priority`
        (default: the largest seen so far). Opens an episode if none is open.
        """
    def extend(self, **kwargs) -> None:
        """
        Appends T consecutive steps of the episode: every column as [T, *shape], and
        optionally `priority`, one number or one a step.
        """
    @property
    def episode(self) -> int | None:
        """
        Number of the open episode, or None.
        """

class VectorWriter:
    def __init__(
        self,
        shard: Shard,
        num_environments: typing.SupportsInt | typing.SupportsIndex,
        next_step: bool,
        closing_columns: collections.abc.Sequence[str],
        episodes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex | None],
        ended: collections.abc.Sequence[str | None],
        timeout_s: typing.SupportsFloat | typing.SupportsIndex | None,
        stream_of: collections.abc.Callable,
    ) -> None: ...
    def _close(self) -> int:
        """
        Ends open episodes; returns how many it has cut.
        """
    def _end_episodes(self, terminated: bool, **kwargs) -> None: ...
    def _flush_last(self) -> None: ...
    def append(self, **kwargs) -> None:
        """
        Appends a step of each environment: every column as [N, *shape], and optionally
        `terminated`, `truncated`, `mask` (bool [N]), `priority` and `final`.
        """
    def flush(self) -> None:
        """
        Stores the steps of a call whose flags, mask or priorities lie on a GPU, and waits for
        these: else the next call of the writer does.
        """
    @property
    def ended(self) -> list[str | None]:
        """
        How environments have ended whose episodes the row behind the end will close, in mode
        'next_step': 'terminated' or 'truncated', by environment; None: it has not ended.
        """
    @property
    def episodes(self) -> list[int | None]:
        """
        Numbers of the open episodes, by environment; None: none is open.
        """

class Batch:
    CU_SEQLENS: typing.ClassVar[int] = 3
    DATA: typing.ClassVar[int] = 0
    IDS: typing.ClassVar[int] = 4
    LENGTHS: typing.ClassVar[int] = 2
    MASK: typing.ClassVar[int] = 1
    PROBABILITIES: typing.ClassVar[int] = 5
    WEIGHTS: typing.ClassVar[int] = 6
    def dlpack(
        self,
        kind: typing.SupportsInt | typing.SupportsIndex,
        output: typing.SupportsInt | typing.SupportsIndex = 0,
        stream: typing.SupportsInt | typing.SupportsIndex | None = None,
    ) -> typing_extensions.CapsuleType: ...
    def dlpack_all(self) -> list: ...
    def numpy(
        self,
        kind: typing.SupportsInt | typing.SupportsIndex,
        output: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> numpy.ndarray: ...
    @property
    def bytes(self) -> int: ...
    @property
    def device(self) -> int: ...
    @property
    def items(self) -> int: ...
    @property
    def path(self) -> str: ...

class Failure:
    def __init__(self) -> None: ...
    def doing(self, what: str) -> None:
        """
        The user's call that this rank is in, for the words of an interrupt; "": none.
        """
    def finish_telling(self) -> None:
        """
        Waits until what was told has left for the other ranks, some seconds at most: for a
        process that is about to end.
        """
    def tell(self, text: str) -> None:
        """
        Ends the group: all waits of its transports end, here and on the ranks they reach.
        The first words count.
        """
    @property
    def text(self) -> str:
        """
        What was told; empty: nothing.
        """

class Transport:
    def __reduce_ex__(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> typing.Any: ...
    def allgather(self, mine: bytes) -> bytes:
        """
        The bytes of all ranks, by rank; of one size on all. Collective.
        """
    def duplicate(self) -> Transport:
        """
        Another transport between the same ranks, for another thread. Collective.
        """
    def exchange(
        self,
        to: collections.abc.Sequence[bytes],
        sizes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | None = None,
    ) -> list[bytes]:
        """
        Sends to[r] to rank r; returns what every rank sent here, by rank. sizes: how many
        bytes come, by rank: other ones are an error, and where none come no message is sent.
        All ranks know them, or none does. Collective.
        """
    def exchange_sparse(
        self, to: collections.abc.Sequence[bytes], from_: collections.abc.Sequence[bool]
    ) -> list[bytes]:
        """
        The same where ranks know who sends whom something, and nobody how much: from_[r],
        whether rank r has bytes for this one. Pairs that have nothing send no message.
        """
    def look(self) -> None:
        """
        Raises TransportError where the group has failed, as far as this rank can tell at once.
        """
    def present(self, wait_s: typing.SupportsFloat | typing.SupportsIndex) -> list[int]:
        """
        The ranks that make this call too within `wait_s`, after a failure too; all, where the
        transport cannot tell.
        """
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def timeout_s(self) -> float:
        """
        Seconds: the longest wait of a call. Set, it is that of the calls from now on, the same on
        all ranks.
        """
    @timeout_s.setter
    def timeout_s(self, arg1: typing.SupportsFloat | typing.SupportsIndex) -> None: ...

class SharedRoom:
    """
    The memory of a shared_memory transport.
    """
    def __init__(self, name: str, size: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class FabricPlace:
    """
    Where messages for this rank arrive by libfabric.
    """
    def __init__(self, token: typing.SupportsInt | typing.SupportsIndex, interface: str) -> None:
        """
        token: of the launch, the same on all its ranks and on no others. interface: of the
        network, for a provider over TCP; "": its first.
        """
    def connect(
        self,
        addresses: collections.abc.Sequence[bytes],
        rank: typing.SupportsInt | typing.SupportsIndex,
        timeout_s: typing.SupportsFloat | typing.SupportsIndex,
        failure: Failure | None = None,
        neighbours: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ] = [],
        nodes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] | None = None,
        room: tuple[str, SharedRoom | None] = ("", None),
    ) -> Transport:
        """
        Messages to the ranks of these addresses, once. neighbours: the ranks on this machine,
        (rank, pid, start time, namespace of pids), which are named soon where they have ended.
        nodes: of every rank; then what all are told goes inside the nodes first, over memory
        that the lowest rank of each has made: room, (its name, the SharedRoom on that rank).
        """
    @property
    def address(self) -> bytes: ...
    @property
    def provider(self) -> str: ...
    @property
    def text(self) -> str:
        """
        "tcp on eth0"
        """

class Traffic:
    """
    What the calls of emulated transports that share it came to.
    """
    def __init__(self) -> None: ...
    def tallies(self) -> dict:
        """
        By call (allgather, exchange, read, duplicate): calls, messages, bytes, and seconds that the
        curves say, by gear.emu.BASES.
        """

class LoneDraw:
    """
    What the draws of a batch of all ranks cost one of them.
    """
    def __init__(
        self,
        shard: Shard,
        batch_size: typing.SupportsInt | typing.SupportsIndex,
        locality: str,
        nodes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ) -> None:
        """
        nodes: of every rank; the others hold as much as this one, the first, does.
        """
    def draw(self) -> int:
        """
        The next batch's draws; returns how many fall on this rank.
        """

class Peers:
    def __init__(
        self,
        shard: Shard,
        transport: Transport,
        nodes: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        hide_names: bool,
    ) -> None: ...
    def publish(self) -> None: ...
    def save(self, path: str) -> None: ...
    def update(
        self,
        ids: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        priorities: typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
    ) -> None: ...
    def update_at(
        self,
        ids: typing.SupportsInt | typing.SupportsIndex,
        priorities: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def update_from_device(
        self,
        ids: typing.SupportsInt | typing.SupportsIndex,
        priorities: typing.SupportsInt | typing.SupportsIndex,
        count: typing.SupportsInt | typing.SupportsIndex,
        stream: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    @property
    def published(self) -> bool: ...

class LoaderOptions:
    def __init__(
        self,
        shard: Shard,
        *,
        outputs: collections.abc.Sequence[
            tuple[
                str,
                str,
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
                str,
                bool,
                str | None,
                typing.SupportsFloat | typing.SupportsIndex,
                str,
            ]
        ],
        batch_size: typing.SupportsInt | typing.SupportsIndex,
        packed: bool,
        prefetch: typing.SupportsInt | typing.SupportsIndex,
        policy: str,
        unit: str,
        seed: typing.SupportsInt | typing.SupportsIndex,
        alpha: typing.SupportsFloat | typing.SupportsIndex,
        beta: typing.SupportsFloat | typing.SupportsIndex,
        shuffle: bool,
        drop_last: bool,
        device: typing.SupportsInt | typing.SupportsIndex,
        path: str,
        locality: str,
        nccl: bool,
        timeout_s: typing.SupportsFloat | typing.SupportsIndex | None,
        pull: bool,
        normalize: str = "batch",
    ) -> None: ...

class Collector:
    def __init__(self, shard: Shard, options: LoaderOptions, peers: Peers | None) -> None: ...
    def batches_per_epoch(self) -> int: ...
    def check(self, state: dict) -> None: ...
    def end(self) -> None: ...
    def next(
        self, timeout_s: typing.SupportsFloat | typing.SupportsIndex | None = None
    ) -> typing.Any: ...
    def out_of_step(self) -> bool: ...
    def restore(self, state: dict) -> None: ...
    def set_beta(self, beta: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    def state(self) -> dict: ...
    def stats(self) -> dict: ...

def build_info() -> dict:
    """
    What was built: version, compiler, CUDA and MPI (their versions; empty: without),
    verbs and fabric (whether); and how many threads gather, once one is needed.
    """

def collect_ids(
    shard: Shard,
    ids: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    outputs: collections.abc.Sequence[
        tuple[
            str,
            str,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            str,
            bool,
            str | None,
            typing.SupportsFloat | typing.SupportsIndex,
            str,
        ]
    ],
    packed: bool,
    device: typing.SupportsInt | typing.SupportsIndex,
) -> Batch: ...
def describe_schema(
    columns: collections.abc.Sequence[
        tuple[str, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], str]
    ],
) -> tuple[int, str]:
    """
    Checks columns (name, shape, dtype); returns (step_bytes, hash).
    """

def devices() -> list:
    """
    The GPUs that this process may use, one dict each.
    """

def driver_version() -> int:
    """
    CUDA version of the driver, 1000 * major + 10 * minor; 0: none.
    """

def emulated_transport(
    inner: Transport,
    traffic: Traffic,
    *,
    all_gather: tuple[
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ],
    all_to_all: tuple[
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ],
    send: tuple[
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    ],
    holds: bool,
) -> Transport:
    """
    A transport whose calls are counted, and take what curves say, each of them (bytes, seconds,
    numbers of bases); with `holds`, they last as long.
    """

def environment() -> list:
    """
    The environment variables for operators: (name, default, meaning).
    """

def fabric_port() -> str:
    """
    What fabric_transport would take here, in words: "cxi on cxi0".
    """

def fabric_transport(
    messages: Transport, failure: Failure | None = None, required: bool = True
) -> Transport:
    """
    A transport that reads rows through libfabric; all else goes by `messages`.
    Collective.
    """

def first_exchange(
    transport: Transport,
    sources: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
    patience_s: typing.SupportsFloat | typing.SupportsIndex,
) -> float:
    """
    Bytes a second of rank sources[r]'s rows that come to rank r: the slowest rank's, the same
    on all. Collective.
    """

def group_transport(
    channel: typing.Any,
    rank: typing.SupportsInt | typing.SupportsIndex,
    size: typing.SupportsInt | typing.SupportsIndex,
    timeout_s: typing.SupportsFloat | typing.SupportsIndex,
) -> Transport:
    """
    A transport over channel.allgather(mine, all), .exchange_bytes(to, sizes), .duplicate().
    """

def inspect(path: str) -> dict: ...
def link_speeds(device: typing.SupportsInt | typing.SupportsIndex, *, measure: bool) -> typing.Any:
    """
    Speeds of gathers from pinned memory, measured now or kept from before; None: never.
    """

def load(
    path: str, *, tier: str, name: str, owner: typing.SupportsInt | typing.SupportsIndex
) -> tuple[Shard, numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.float32]]: ...
def load_share(
    paths: collections.abc.Sequence[str],
    *,
    tier: str,
    name: str,
    rank: typing.SupportsInt | typing.SupportsIndex,
    size: typing.SupportsInt | typing.SupportsIndex,
) -> Shard: ...
def loopback_transports(
    size: typing.SupportsInt | typing.SupportsIndex,
    timeout_s: typing.SupportsFloat | typing.SupportsIndex,
    failures: collections.abc.Sequence[Failure] = [],
) -> list[Transport]:
    """
    The ranks of a group whose ranks are threads of this process.
    """

def made_up_name() -> str:
    """
    A name for memory that the ranks of one group map, which nobody else learns. Removes
    what ranks left behind under such names that were killed before the others mapped it.
    """

def measure_bandwidth(device: typing.SupportsInt | typing.SupportsIndex) -> dict:
    """
    GB/s of copies to, from and inside a GPU.
    """

def mpi_transport(
    communicator: typing.SupportsInt | typing.SupportsIndex,
    timeout_s: typing.SupportsFloat | typing.SupportsIndex,
    *,
    message_bytes: typing.SupportsInt | typing.SupportsIndex = 1048520,
    failure: Failure | None = None,
) -> Transport:
    """
    The ranks of an MPI communicator: its handle in Fortran, 0 for all. Collective.
    """

def parse_device(device: str) -> int:
    """
    The GPU that 'cuda' or 'cuda:<index>' names; -1 for 'cpu'.
    """

def raise_as(
    *,
    InvalidArgument: typing.Any,
    OutOfMemory: typing.Any,
    CudaError: typing.Any,
    TransportError: typing.Any,
    CorruptData: typing.Any,
    IoError: typing.Any,
) -> None:
    """
    Says which Python class each error of the core becomes.
    """

def runtime_version() -> int:
    """
    CUDA version of the runtime inside; 0: built without CUDA.
    """

def save(shard: Shard, path: str) -> None: ...
def send_log_to(sink: typing.Any) -> None:
    """
    Passes log messages of the core to sink(level, message).
    """

def shared_memory_transport(
    name: str,
    rank: typing.SupportsInt | typing.SupportsIndex,
    size: typing.SupportsInt | typing.SupportsIndex,
    timeout_s: typing.SupportsFloat | typing.SupportsIndex,
    failure: Failure | None = None,
    made: SharedRoom | None = None,
) -> Transport:
    """
    A rank of a group on this node; `name` is this group's alone. Collective.
    made: rank 0's SharedRoom of that name, where it has made one.
    """

def verbs_port() -> str:
    """
    The RDMA port that verbs_transport would take here, in words.
    """

def verbs_transport(
    messages: Transport, failure: Failure | None = None, required: bool = True
) -> Transport:
    """
    A transport that reads rows by RDMA; all else goes by `messages`. Collective.
    """

def version() -> str: ...

CHECKPOINT_FORMAT: int = 4
