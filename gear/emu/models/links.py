"""What the links of a cluster carry, number by number, and where each number comes from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gear.arguments import check_number, check_text
from gear.emu.models.curve import BASES, Curve, Point, check_operation, rising
from gear.emu.models.ready import READY
from gear.emu.models.shape import Shape
from gear.emu.text_file import write_whole
from gear.errors import CorruptData, InvalidArgument, IoError

FORMAT = 1

LINKS = ("nvlink", "nic")  # of a GPU to its node, and of a node to others

# NCCL's ways to send small, middle and large messages: few hops of flags beside the data, or the
# link's whole bandwidth.
PROTOCOLS = ("ll", "ll128", "simple")

# What a number is; in names, P is a protocol and G a number of GPUs of one node.
NUMBERS = {
    "nvlink.gb_per_s": "1e9 bytes a second that a GPU sends to others of its node",
    "nic.gb_per_s": "1e9 bytes a second that one NIC sends",
    "nic.per_node": "NICs of a node",
    "P.share": "of a link's bandwidth that the protocol reaches, 0 to 1",
    "P.base_us": "us that each call takes",
    "P.nvlink_us": "us of a hop inside a node",
    "P.nic_us": "us of a hop between nodes, in a ring",
    "P.tree_us": "us of a hop between nodes, in a tree",
    "nvls.base_us": "us of an all_reduce of nothing that the switches of a node sum",
    "nvls.gb_per_s.G": "1e9 bytes a second of its bus bandwidth, 2 (G - 1) / G of the tensor",
    "nvls_tree.base_us": "us of the same over several nodes, without their hops",
    "nvls_tree.hop_us": "us of a hop between nodes",
    "nvls_tree.gb_per_s": "1e9 bytes a second of its bus bandwidth",
}
_NAMES = re.compile(
    "|".join(
        re.escape(name).replace("G", r"[0-9]+").replace("P", f"(?:{'|'.join(PROTOCOLS)})")
        for name in NUMBERS
    )
)


@dataclass(frozen=True)
class Number:
    """A number of the links.

    Args:
        value: above 0, in the unit that its name says.
        basis: one of gear.emu.BASES.
        source: where it comes from, in words.
    """

    value: float
    basis: str = "given"
    source: str = ""

    def __post_init__(self) -> None:
        value = check_number("[emu] a number of the links", self.value)
        if not 0 < value < float("inf"):
            raise InvalidArgument(
                f"[emu] {value} is no number of the links: finite ones above 0 are allowed"
            )
        if self.basis not in BASES:
            raise InvalidArgument(
                f"[emu] basis {self.basis!r} of a number: {', '.join(BASES)} are allowed"
            )


@dataclass(frozen=True)
class Measured:
    """What an operation took in a group of that shape."""

    operation: str
    shape: Shape
    point: Point

    def __post_init__(self) -> None:
        check_operation(self.operation)


@dataclass(frozen=True)
class Footprint:
    """What NCCL's kernel of an operation takes of a GPU, and other kernels go without.

    Args:
        operation: one of gear.emu.OPERATIONS.
        bytes: from so many on.
        blocks: of threads, each of which takes a place on a multiprocessor.
        threads: of a block.
        shared: bytes of shared memory of a block.
    """

    operation: str
    bytes: int
    blocks: int
    threads: int
    shared: int

    def __post_init__(self) -> None:
        check_operation(self.operation)
        most = {"bytes": 1 << 62, "blocks": 1 << 16, "threads": 1024, "shared": 227 << 10}
        for name, largest in most.items():
            value = getattr(self, name)
            least = 1 if name in ("blocks", "threads") else 0
            if not isinstance(value, int) or not least <= value <= largest:
                raise InvalidArgument(
                    f"[emu] {name} {value!r} of a footprint: {least} to {largest} are allowed"
                )


@dataclass(frozen=True)
class Beside:
    """What NCCL takes on GPUs beside its time, as a calibration found it.

    Args:
        group_bytes: of a GPU's memory that a group holds, torch's allocator apart.
        host_us: that the host takes for a call.
        product_lost: which part of its speed a matrix product loses beside all_gathers; 0 to 1.
        two_groups: how many times as long all_reduces of two groups take at once; 2: they share
            their links, as it is modelled.
    """

    group_bytes: int
    host_us: float
    product_lost: float
    two_groups: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            number = check_number(f"[emu] {name} of the links", value)
            largest = 1.0 if name == "product_lost" else 1e18
            if not 0 <= number <= largest:
                raise InvalidArgument(
                    f"[emu] {name} {value!r} of the links: 0 to {largest:g} is allowed"
                )


@dataclass(frozen=True)
class Links:
    """The links of a cluster whose nodes are alike: inside of them (nvlink) and between (nic).

    Args:
        name: of the cluster, for messages.
        numbers: by the names of NUMBERS. Each protocol has all of its numbers, or none.
        measured: takes the place of formulas where it reaches.
        footprints: of NCCL's kernels, as measured. Without any, operations on GPUs take no room
            from what is computed beside them, which flatters programs that overlap both.
        beside: what NCCL takes beside; None: it was not measured.

    Raises:
        InvalidArgument: for a name that is none of NUMBERS, and a protocol in part.
    """

    name: str
    numbers: Mapping[str, Number]
    measured: tuple[Measured, ...] = field(default=())
    footprints: tuple[Footprint, ...] = field(default=())
    beside: Beside | None = None

    def __post_init__(self) -> None:
        check_text("[emu] name of the links", self.name)
        for name in self.numbers:
            if not _NAMES.fullmatch(name):
                raise InvalidArgument(
                    f"[emu] {name!r} is no number of links: {', '.join(NUMBERS)} are, where P is"
                    f" {', '.join(PROTOCOLS)} and G the GPUs of a node"
                )
        for protocol in PROTOCOLS:
            wanted = {name.replace("P.", f"{protocol}.") for name in NUMBERS if name[:2] == "P."}
            missing = sorted(wanted - self.numbers.keys())
            if missing and len(missing) < len(wanted):
                raise InvalidArgument(
                    f"[emu] the links '{self.name}' have a part of protocol {protocol}: give"
                    f" {', '.join(missing)} too, or none of it"
                )
        if not self.protocols:
            raise InvalidArgument(
                f"[emu] the links '{self.name}' have no protocol: give all numbers of one of"
                f" {', '.join(PROTOCOLS)}"
            )
        needed = {"nvlink.gb_per_s", "nic.gb_per_s", "nic.per_node"}
        if any(name.startswith("nvls.gb_per_s.") for name in self.numbers):
            needed.add("nvls.base_us")
        if "nvls_tree.gb_per_s" in self.numbers:
            needed |= {"nvls_tree.base_us", "nvls_tree.hop_us"}
        if missing := sorted(needed - self.numbers.keys()):
            raise InvalidArgument(
                f"[emu] the links '{self.name}' lack {', '.join(missing)}: give it"
            )

    @property
    def protocols(self) -> tuple[str, ...]:
        """Those of PROTOCOLS whose numbers there are."""
        return tuple(one for one in PROTOCOLS if f"{one}.share" in self.numbers)

    def __getitem__(self, name: str) -> float:
        return self.numbers[name].value

    def get(self, name: str) -> float | None:
        """A number's value; None: there is none of that name."""
        number = self.numbers.get(name)
        return None if number is None else number.value

    def with_numbers(self, given: Mapping[str, float]) -> Links:
        """The same with these numbers in the place of its own, and nothing measured.

        What was measured was measured over the links as they were. Sums in switches go over links,
        too: where a bandwidth of nvlink or nic is given, theirs that are not change alike.
        """
        numbers = {name: Number(value, "given", "given") for name, value in given.items()}
        own = {f"{link}.gb_per_s": link for link in LINKS}
        times = {
            link: given[name] / self[name]
            for name, link in own.items()
            if name in given and name in self.numbers
        }
        switched = {
            name: Number(value, "given", "as the links it goes over")
            for name, value in self._switched(times).items()
        }
        return replace(
            self,
            numbers={**self.numbers, **switched, **numbers},
            measured=() if given else self.measured,
        )

    def with_bandwidths(self, times: Mapping[str, float]) -> Links:
        """The same where these links have so many times their bandwidth, and nothing measured; of
        one that has none at all, nothing is known, and it stays."""
        changed = {link: factor for link, factor in times.items() if factor not in (0, 1)}
        return self.with_numbers(
            {f"{link}.gb_per_s": self[f"{link}.gb_per_s"] * changed[link] for link in changed}
        )

    def _switched(self, times: Mapping[str, float]) -> dict[str, float]:
        """Bandwidths of sums in switches, where links have so many times theirs."""
        factors = {
            name: times.get("nvlink", 1.0)
            for name in self.numbers
            if name.startswith("nvls.gb_per_s.")
        }
        factors["nvls_tree.gb_per_s"] = min(times.values(), default=1.0)
        return {
            name: self[name] * factor
            for name, factor in factors.items()
            if name in self.numbers and factor != 1
        }

    def with_measured(self, measured: Iterable[Measured]) -> Links:
        """The same with these measurements, in the place of its own of the same operation and
        shape. Where more bytes took less, both are taken to have their mean (`rising`).

        Raises:
            InvalidArgument: for sizes that have a gap, as Curve has it.
        """
        points: dict[tuple[str, Shape], list[Point]] = {}
        for one in measured:
            points.setdefault((one.operation, one.shape), []).append(one.point)
        kept = [one for one in self.measured if (one.operation, one.shape) not in points]
        for (operation, shape), found in points.items():
            curve = Curve(rising(sorted(found, key=lambda point: point.bytes)))
            kept += [Measured(operation, shape, point) for point in curve.points]
        return replace(self, measured=tuple(kept))

    def with_footprints(self, footprints: Iterable[Footprint]) -> Links:
        """The same with these, in the place of its own of the same operation."""
        given = tuple(footprints)
        names = {one.operation for one in given}
        kept = tuple(one for one in self.footprints if one.operation not in names)
        return replace(self, footprints=(*kept, *given))

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Links:
        """Ready links by their name, or those of a file that save() wrote.

        Raises:
            InvalidArgument: for a name that is neither, and numbers that are not allowed.
            CorruptData: for a file that save() did not write.
            IoError: where the file cannot be read.
        """
        ready = READY.get(os.fspath(source))
        if ready is not None:
            name, numbers = os.fspath(source), ready
            return cls(name, {key: Number(*number) for key, number in numbers.items()})
        path = Path(source)
        if not path.exists():
            raise InvalidArgument(
                f"[emu] links '{source}' are neither ready ones ({', '.join(sorted(READY))}) nor a"
                " file"
            )
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise IoError(error.errno, f"[emu] the links {path} cannot be read: {error}") from None
        except UnicodeDecodeError as error:
            raise CorruptData(f"[emu] the links {path} are no text: {error}") from None
        return cls._of_text(text, path)

    @classmethod
    def _of_text(cls, text: str, path: Path) -> Links:
        try:
            said = json.loads(text)
            if said["format"] != FORMAT:
                raise CorruptData(
                    f"[emu] the links {path} are of format {said['format']!r}: {FORMAT} is read"
                    " here"
                )
            numbers = {name: Number(**number) for name, number in said["numbers"].items()}
            measured = tuple(
                Measured(one["operation"], Shape(**one["shape"]), Point(**one["point"]))
                for one in said["measured"]
            )
            footprints = tuple(Footprint(**one) for one in said.get("footprints", ()))
            beside = Beside(**said["beside"]) if said.get("beside") else None
            return cls(said["name"], numbers, measured, footprints, beside)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise CorruptData(
                f"[emu] the links {path} are no file that Links.save wrote: {error!r}"
            ) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that load() reads, whole or not at all.

        Raises:
            IoError: where it cannot be written.
        """
        said = {
            "format": FORMAT,
            "name": self.name,
            "numbers": {name: asdict(number) for name, number in self.numbers.items()},
            "measured": [asdict(one) for one in self.measured],
            "footprints": [asdict(one) for one in self.footprints],
            "beside": None if self.beside is None else asdict(self.beside),
        }
        write_whole(path, json.dumps(said, indent=1) + "\n")
