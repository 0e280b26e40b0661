"""`gear bench links`: rows between two ranks, by everything that carries them here."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import gear
from gear.cli.bench import bounds
from gear.cli.bench.rates import Work, pack_below, rows_per_s
from gear.distributed.channels.transports import ONE_SIDED
from gear.distributed.meeting.launch import installed
from gear.errors import InvalidArgument

ROW_BYTES = (64, 256, 1024, 4096, 16384, 65536)
MOST_COPIED = 256 << 20
PACKED = " packed"  # by their owner, and read at once; without it, each row is read alone
WAYS = [kind + way for kind in ONE_SIDED for way in ("", PACKED)]
KINDS = ("mapped", "shared_memory", "mpi", "libfabric", "group", *WAYS)
CONNECT = ("libfabric", "group")  # the ranks, too, which so must meet once more
PACK_BELOW = "GEAR_PACK_BELOW"


@dataclass(frozen=True)
class Measured:
    """Rows of one size by one of KINDS, and what they cannot be faster than, where it is known."""

    kind: str
    row_bytes: int
    rows_per_s: float
    bound: bounds.Bound | None

    @property
    def bytes_per_s(self) -> float:
        return self.rows_per_s * self.row_bytes


@dataclass
class Report:
    """Of rank 0. `told`, by kind: the port or provider, or why it was not measured."""

    ranks: list[str]
    measured: list[Measured]
    told: dict[str, str]


def run(row_bytes: Sequence[int], work: Work, as_json: bool) -> int:
    """Rank 0 prints. Where no launcher started this process, it starts the second rank itself."""
    with gear.Group.from_env() as group:
        if group.size > 2:
            raise InvalidArgument(
                f"[bench] gear bench links has {group.size} ranks: start 2, one on each of two "
                "nodes: srun -N 2 -n 2 gear bench links"
            )
        if group.size == 2:
            return _measure_and_print(group, row_bytes, work, as_json)
    place: dict[str, str | None] = {
        name: None for name in os.environ if name.startswith("TORCHELASTIC_")
    }
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    place |= {"RANK": "0", "WORLD_SIZE": "2"}
    words = [f"--row-bytes={one}" for one in row_bytes]
    words += [f"--seconds={work.seconds}", f"--pool-mib={work.pool_bytes >> 20}"]
    with _environment(place):
        other = subprocess.Popen(
            [sys.executable, "-m", "gear.cli.app", "bench", "links", *words],
            env={**os.environ, "RANK": "1"},
        )
        try:
            with gear.Group.from_env() as group:
                return _measure_and_print(group, row_bytes, work, as_json)
        finally:
            other.terminate()
            other.wait()


def measure(group: gear.Group, row_bytes: Sequence[int], work: Work) -> Report:
    """Everything that these two ranks can use. Collective; of use on rank 0.

    group: of Group.from_env, by which more are made.
    """
    report = Report([str(member) for member in group.members], [], {})
    copy = bounds.copy(min(MOST_COPIED, work.pool_bytes)) if group.rank == 0 else None
    for kind in KINDS:
        carrier = kind.removesuffix(PACKED)
        try:
            packed = str(1 << 40) if kind.endswith(PACKED) else "0"  # all rows, or none
            with _group_by(carrier, group) as used, _environment({PACK_BELOW: packed}):
                bound = copy if _in_memory(carrier, used) else _network(carrier, used)
                tier = "shared" if kind == "mapped" else "host"
                for size in row_bytes:
                    rate = rows_per_s(used, tier, size, work)
                    report.measured.append(Measured(kind, size, rate, bound))
            if kind in ONE_SIDED:
                with _group_by(kind, group) as used:
                    below = f"owners pack runs below {pack_below(used):,} bytes"
                    report.told[kind] = f"{used.transport_reason}; {below}"
        except InvalidArgument as error:  # the same on both ranks
            report.told[carrier] = str(error)
    return report


@contextmanager
def _environment(given: Mapping[str, str | None]) -> Iterator[None]:
    """These variables meanwhile; None: without it."""
    former = {name: os.environ.get(name) for name in given}
    _set(given)
    try:
        yield
    finally:
        _set(former)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _group_by(kind: str, group: gear.Group) -> gear.Group:
    if kind in CONNECT:
        if kind == "group":
            _check_gloo(group)
        return gear.Group.from_env(timeout_s=group.timeout_s, transport=kind)
    if kind != "mapped":
        transport = kind
    elif group.num_nodes == 1:
        transport = "shared_memory"
    else:
        raise InvalidArgument(
            "[bench] the ranks are on two nodes and map none of each other's memory"
        )
    return gear.Group(group.channel(), group.members, launcher=group.launcher, transport=transport)


def _check_gloo(group: gear.Group) -> None:
    """Refuses `group` on both ranks alike where one has no torch."""
    with closing(group.channel()) as channel:
        by_mpi = channel.kind == "mpi"  # and so would be that of `group`
    if not by_mpi and not all(group.exchange(installed("torch"))):
        raise InvalidArgument("[bench] 'group' is torch's gloo, and not both ranks have torch")


def _in_memory(kind: str, group: gear.Group) -> bool:
    return kind != "verbs" and len({member.host for member in group.members}) == 1


def _network(kind: str, group: gear.Group) -> bounds.Bound | None:
    """The port that `verbs` says it takes; else the fastest that there is."""
    found = list(bounds.ports())
    if kind == "verbs":
        found = [bound for bound in found if f"{bound.of}," in group.transport_reason]
    elif kind == "group":
        found = list(bounds.interfaces())
    else:
        found += bounds.interfaces()
    return max(found, key=lambda bound: bound.bytes_per_s, default=None)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _measure_and_print(
    group: gear.Group, row_bytes: Sequence[int], work: Work, as_json: bool
) -> int:
    report = measure(group, row_bytes or ROW_BYTES, work)
    if group.rank == 0:
        if as_json:
            print(json.dumps(dataclasses.asdict(report), indent=2))
        else:
            print_table(report)
    return 0


def print_table(report: Report) -> None:
    """A line for each rate, and below, what carried rows or could not."""
    from rich import box
    from rich.console import Console, JustifyMethod
    from rich.table import Table

    title = f"rows of {report.ranks[1]}, read by {report.ranks[0]}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("by", "row bytes", "rows/s", "GB/s", "share", "of GB/s", "bound"):
        side: JustifyMethod = "left" if heading in ("by", "bound") else "right"
        table.add_column(heading, justify=side, no_wrap=True)
    kind = ""
    for row in report.measured:
        if kind not in ("", row.kind):
            table.add_section()
        kind = row.kind
        part, most, of = "?", "?", "not known"
        if row.bound is not None:
            part = f"{100 * row.bytes_per_s / row.bound.bytes_per_s:.1f} %"
            most, of = f"{row.bound.bytes_per_s / 1e9:.2f}", row.bound.of
        gigabytes = f"{row.bytes_per_s / 1e9:.3f}"
        table.add_row(
            kind, f"{row.row_bytes:,}", f"{row.rows_per_s:,.0f}", gigabytes, part, most, of
        )
    console = Console()
    console.print(table)
    for kind, words in report.told.items():
        measured = any(row.kind == kind for row in report.measured)
        console.print(
            f"{kind}: {'' if measured else 'not measured: '}{words}", markup=False, highlight=False
        )
