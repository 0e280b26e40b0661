"""A job of which a few ranks run, and the file that says so."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from gear.arguments import check_count, check_text
from gear.emu.events import KINDS, Event
from gear.emu.models.links import Links
from gear.emu.models.model import Model, model
from gear.emu.models.shape import Shape
from gear.emu.text_file import write_whole
from gear.errors import CorruptData, InvalidArgument, IoError

MOST_RANKS = 1 << 24


@dataclass(frozen=True)
class Job:
    """N ranks on nodes, of which some are real processes: with all of them, it is an ordinary job.

    Args:
        ranks: N, of the whole job.
        per_node: ranks a node; `ranks` is a multiple. None: 8, or all of fewer.
        real: the ranks that are processes, each once.
        links: a name or a file, as `Links.load` takes it.
        set: numbers in the place of those of `links`, by name.
        model: which function says what an operation takes, as `gear.emu.model` takes it by name.
        events: what happens to emulated ranks and to links.
        seed: of what happens by chance.

    Raises:
        InvalidArgument: for values that are not allowed, and what `Links.load` and `model` refuse.
    """

    ranks: int
    per_node: int | None = None
    real: tuple[int, ...] = (0,)
    links: str = "hgx-h100"
    set: Mapping[str, float] = field(default_factory=dict)
    model: str = "two_level"
    events: tuple[Event, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        ranks = check_count("[emu] ranks of a job", self.ranks, most=MOST_RANKS)
        per_node = min(8, ranks) if self.per_node is None else self.per_node
        check_count("[emu] per_node of a job", per_node, most=ranks)
        if ranks % per_node:
            raise InvalidArgument(
                f"[emu] {ranks} ranks, {per_node} a node: a multiple of {per_node} is allowed"
            )
        check_text("[emu] links of a job", self.links)
        check_text("[emu] model of a job", self.model)
        check_count("[emu] seed of a job", self.seed, least=0)
        if not isinstance(self.set, Mapping):
            raise InvalidArgument(f"[emu] set {self.set!r} of a job: numbers by name are allowed")
        object.__setattr__(self, "per_node", per_node)
        object.__setattr__(self, "real", self._checked(self.real))
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, tuple(KINDS.values())):
                raise InvalidArgument(
                    f"[emu] event {event!r} of a job: Slow, Dead, Jitter and LinkChange are allowed"
                )
            rank = getattr(event, "rank", None)
            if rank is not None and rank >= ranks:
                raise InvalidArgument(f"[emu] an event of rank {rank}: 0 to {ranks - 1} is allowed")
            if rank in self.real:
                raise InvalidArgument(
                    f"[emu] an event of rank {rank}, which is real: slow it down or end it"
                    " yourself, or name an emulated rank"
                )
        if self.model == "none" and len(self.real) < ranks:
            raise InvalidArgument(
                "[emu] model 'none', and ranks that are emulated: nobody knows what an operation"
                " takes with them, so name another model, or make all ranks real (--real all)"
            )
        self.loaded_links()
        self.loaded_model()

    def _checked(self, real: Sequence[int]) -> tuple[int, ...]:
        if not isinstance(real, (list, tuple, range)):
            raise InvalidArgument(f"[emu] real {real!r} of a job: a list of ranks is allowed")
        found = [check_count("[emu] real rank", rank, least=0) for rank in real]
        for place, rank in enumerate(found):
            if rank >= self.ranks:
                raise InvalidArgument(
                    f"[emu] real rank {rank} of {self.ranks}: 0 to {self.ranks - 1} is allowed"
                )
            if rank in found[:place]:
                raise InvalidArgument(f"[emu] real rank {rank} is given twice: give it once")
        if not found:
            raise InvalidArgument("[emu] no real rank: one or more are needed")
        return tuple(sorted(found))

    @property
    def real_in_words(self) -> str:
        """The real ranks, for a message: 0, 8 of 512."""
        few = ", ".join(map(str, self.real[:8]))
        return f"{few}{', ...' if len(self.real) > 8 else ''} of {self.ranks}"

    def loaded_links(self) -> Links:
        """Those of the job, with what `set` says."""
        return Links.load(self.links).with_numbers(self.set)

    def loaded_model(self) -> Model:
        """The function that `model` names."""
        return model(self.model)

    def shape_of(self, ranks: Iterable[int]) -> Shape:
        """How a group of these ranks of the world lies on nodes; the fullest node counts."""
        nodes: dict[int, int] = {}
        for rank in ranks:
            node = rank // (self.per_node or 1)
            nodes[node] = nodes.get(node, 0) + 1
        return Shape(max(nodes.values()), len(nodes))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Job:
        """The job of a file that `save` wrote, or somebody by hand.

        ```toml
        ranks = 512
        per_node = 8
        real = [0]
        links = "hgx-h100"
        set = { "nic.gb_per_s" = 25 }

        [[events]]
        kind = "slow"
        rank = 7
        by = 1.3
        ```

        Raises:
            InvalidArgument: for words and values that are not allowed.
            CorruptData: for a file that is no TOML.
            IoError: where it cannot be read.
        """
        said = said_in(path)
        events = _events(path, said.pop("events", []))
        if wrong := said.keys() - cls.__dataclass_fields__.keys():
            raise InvalidArgument(
                f"[emu] the job {path} has {', '.join(sorted(wrong))}:"
                f" {', '.join(cls.__dataclass_fields__)} are allowed"
            )
        if "ranks" not in said:
            raise InvalidArgument(f"[emu] the job {path} does not say how many ranks: give ranks")
        return cls(**said, events=events)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that `load` reads, whole or not at all.

        Raises:
            IoError: where it cannot be written.
        """
        lines = [f"ranks = {self.ranks}", f"per_node = {self.per_node}"]
        lines += [f"real = {list(self.real)}", f"links = {json.dumps(self.links)}"]
        numbers = ", ".join(f"{json.dumps(name)} = {value!r}" for name, value in self.set.items())
        lines += [f"set = {{ {numbers} }}", f"model = {json.dumps(self.model)}"]
        lines += [f"seed = {self.seed}"]
        for event in self.events:
            kind = next(name for name, one in KINDS.items() if isinstance(event, one))
            lines += ["", "[[events]]", f'kind = "{kind}"']
            given = {name: one for name, one in asdict(event).items() if one is not None}
            lines += [f"{name} = {_toml_of(one)}" for name, one in given.items()]
        write_whole(path, "\n".join(lines) + "\n")


def said_in(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file of a job says, whatever it is.

    Raises:
        CorruptData: for a file that is no TOML.
        IoError: where it cannot be read.
    """
    try:
        said: dict[str, Any] = _toml().loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise IoError(error.errno, f"[emu] the job {path} cannot be read: {error}") from None
    except ValueError as error:  # of a reader of TOML, or of UTF-8
        raise CorruptData(f"[emu] the job {path} is no TOML: {error}") from None
    return said


def _toml_of(value: str | float) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _toml() -> ModuleType:
    for name in ("tomllib", "tomli"):  # the former is Python's, from 3.11 on
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise InvalidArgument("[emu] this Python reads no TOML: pip install tomli")


def _events(path: str | os.PathLike[str], said: object) -> tuple[Event, ...]:
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise InvalidArgument(f"[emu] the job {path}: events stand in tables [[events]]")
    return tuple(_event(path, one) for one in said)


def _event(path: str | os.PathLike[str], said: dict[str, Any]) -> Event:
    kind = said.pop("kind", None)
    if kind not in KINDS:
        raise InvalidArgument(
            f"[emu] the job {path} has an event of kind {kind!r}: {', '.join(KINDS)} are allowed"
        )
    try:
        return KINDS[kind](**said)
    except TypeError as error:
        raise InvalidArgument(f"[emu] the job {path}, an event of kind {kind}: {error}") from None
