"""The configuration of a run: made once from Hydra's, every value checked, then plain attributes.

A class is a group of `conf/`, a field is a key of it and carries the check of its value. A key that
`conf/` has and no class here is an error of tests/train/test_config.py.
"""

# ruff: noqa: RUF009  # _key and _group make fields
from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NoReturn, TypeVar

from omegaconf import DictConfig, OmegaConf

import gear

G = TypeVar("G", bound="ConfigGroup")

MOST = 2**63 - 1  # the core counts in int64
OF_A_RANK = frozenset({"rank", "world_size", "device"})  # may differ between the ranks of a run


@dataclass(frozen=True)
class Check:
    """What a key may hold.

    Attributes:
        allowed: that, in words.
        take: the value as the run uses it; ValueError if it is not allowed.
    """

    allowed: str
    take: Callable[[Any], Any]


def _key(check: Check) -> Any:
    return field(metadata={"check": check})


def _one(allowed: str, fits: Callable[[Any], bool]) -> Check:
    def take(value: Any) -> Any:
        if not fits(value):
            raise ValueError
        return value

    return Check(allowed, take)


def _whole(least: int, most: int = MOST) -> Check:
    words = f"of at least {least}" if most == MOST else f"from {least} to {most}"
    return _one(
        f"a whole number {words}",
        lambda value: type(value) is int and least <= value <= most,
    )


def _number(allowed: str = "", fits: Callable[[float], bool] = math.isfinite) -> Check:
    def take(value: Any) -> float:
        if type(value) not in (int, float) or not (math.isfinite(value) and fits(value)):
            raise ValueError
        return float(value)

    return Check(f"a number, {allowed}" if allowed else "a number", take)


def _choice(*names: str) -> Check:
    return _one("one of " + ", ".join(names), lambda value: value in names)


def _text(allowed: str, pattern: str = ".+") -> Check:
    return _one(allowed, lambda v: isinstance(v, str) and re.fullmatch(pattern, v) is not None)


def _flag() -> Check:
    return _one("true or false", lambda value: isinstance(value, bool))


def _tuple_of(item: Check, allowed: str, *, length: int | None = None) -> Check:
    def take(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or (length is not None and len(value) != length):
            raise ValueError
        return tuple(item.take(each) for each in value)

    return Check(allowed, take)


def _or_null(check: Check) -> Check:
    def take(value: Any) -> Any:
        return None if value is None else check.take(value)

    return Check(f"null or {check.allowed}", take)


def _group(by: str = "", **kinds: type[ConfigGroup]) -> Any:
    """A group whose key `by` says which of `kinds` it is; without `by` there is one kind."""
    return field(metadata={"by": by, "kinds": kinds})


@dataclass(frozen=True, kw_only=True)
class ConfigGroup:
    """Base of the groups: checks every field, wherever the values come from.

    Raises InvalidArgument naming the key, what was given and what is allowed.
    """

    prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            check: Check | None = each.metadata.get("check")
            if check is None:
                continue
            value = getattr(self, each.name)
            try:
                object.__setattr__(self, each.name, check.take(value))
            except (ValueError, TypeError, OverflowError):
                refuse(self.prefix + each.name, value, check.allowed)


@dataclass(frozen=True, kw_only=True)
class Single(ConfigGroup):
    """One process."""

    prefix = "dist."
    name: str = _key(_choice("single"))


@dataclass(frozen=True, kw_only=True)
class Ddp(ConfigGroup):
    """One process per rank."""

    prefix = "dist."
    name: str = _key(_choice("ddp"))
    master_addr: str = _key(_text("the name of rank 0's machine"))
    master_port: int = _key(_whole(1, 65535))
    timeout_s: float = _key(_number("timeout_s > 0", lambda x: x > 0))
    exchange_every: int = _key(_whole(1))
    locality: str = _key(_choice("first", "off"))
    transport: str = _key(_choice("auto", "nccl", "host"))


@dataclass(frozen=True, kw_only=True)
class Env(ConfigGroup):
    prefix = "env."
    name: str = _key(_text("the name of a file of conf/env"))
    id: str = _key(_text("the id of a Gymnasium environment"))
    kwargs: dict[str, Any] = _key(
        _one("a mapping of arguments, {} for none", lambda value: isinstance(value, dict))
    )
    frames: bool = _key(_flag())
    stack: int = _key(_whole(1))
    reward_clip: float | None = _key(_or_null(_number("reward_clip > 0", lambda x: x > 0)))


@dataclass(frozen=True, kw_only=True)
class Algo(ConfigGroup):
    """What every algorithm has."""

    prefix = "algo."
    name: str = _key(_choice("sac", "dqn"))
    gamma: float = _key(_number("0 < gamma <= 1", lambda x: 0 < x <= 1))
    n_step: int = _key(_whole(1))
    batch_size: int = _key(_whole(1))
    learning_starts: int = _key(_whole(0))
    train_every: int = _key(_whole(1))
    updates: int = _key(_whole(1))


@dataclass(frozen=True, kw_only=True)
class Sac(Algo):
    tau: float = _key(_number("0 < tau <= 1", lambda x: 0 < x <= 1))
    target_entropy: float | None = _key(_or_null(_number()))


@dataclass(frozen=True, kw_only=True)
class Dqn(Algo):
    target_every: int = _key(_whole(1))
    epsilon_start: float = _key(_number("0 <= epsilon_start <= 1", lambda x: 0 <= x <= 1))
    epsilon_final: float = _key(_number("0 <= epsilon_final <= 1", lambda x: 0 <= x <= 1))
    epsilon_steps: int = _key(_whole(0))
    max_grad_norm: float = _key(_number("max_grad_norm > 0", lambda x: x > 0))


@dataclass(frozen=True, kw_only=True)
class Replay(ConfigGroup):
    """Every stored step is equally likely."""

    prefix = "replay."
    sampler: str = _key(_choice("uniform", "weighted"))
    capacity: int = _key(_whole(1))
    page_steps: int = _key(_whole(1))
    tier: str = _key(_choice("host", "shared", "pinned", "device"))
    prefetch: int = _key(_whole(0))


@dataclass(frozen=True, kw_only=True)
class Prioritized(Replay):
    """Steps are drawn by the size of their TD error."""

    alpha: float = _key(_number("alpha >= 0", lambda x: x >= 0))
    beta: float = _key(_number("0 <= beta <= 1", lambda x: 0 <= x <= 1))
    beta_steps: int = _key(_whole(1))


@dataclass(frozen=True, kw_only=True)
class Model(ConfigGroup):
    prefix = "model."
    name: str = _key(_choice("mlp", "cnn"))
    hidden: tuple[int, ...] = _key(
        _tuple_of(_whole(1), "a list of layer sizes, each 1 or more, as in [256,256]")
    )


@dataclass(frozen=True, kw_only=True)
class Optim(ConfigGroup):
    prefix = "optim."
    name: str = _key(_choice("adam", "adamw"))
    lr: float = _key(_number("lr > 0", lambda x: x > 0))
    betas: tuple[float, float] = _key(
        _tuple_of(
            _number("", lambda x: 0 <= x < 1),
            "two numbers, each 0 <= beta < 1, as in [0.9,0.999]",
            length=2,
        )
    )
    eps: float = _key(_number("eps > 0", lambda x: x > 0))
    weight_decay: float = _key(_number("weight_decay >= 0", lambda x: x >= 0))


@dataclass(frozen=True, kw_only=True)
class Logger(ConfigGroup):
    prefix = "logger."
    writers: tuple[str, ...] = _key(
        _tuple_of(_choice("csv", "tensorboard"), "a list of csv, tensorboard or both")
    )


@dataclass(frozen=True, kw_only=True)
class Place(ConfigGroup):
    """What a rank has to know before it meets the others.

    Attributes:
        rank, world_size: set by hand where no launcher sets them; both or neither.
        device: as it is written; whether it is here is checked when ranks start.
    """

    dist: Single | Ddp = _group("name", single=Single, ddp=Ddp)
    rank: int | None = _key(_or_null(_whole(0)))
    world_size: int | None = _key(_or_null(_whole(1)))
    device: str = _key(_text("cpu, cuda, or one GPU as in cuda:0", r"cpu|cuda(:\d{1,4})?"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is None and self.world_size is None:
            return
        if self.world_size is None:
            refuse("world_size", None, "the number of ranks, a whole number, because rank is set")
        if self.rank is None or self.rank >= self.world_size:
            refuse("rank", self.rank, f"0 to {self.world_size - 1}, below world_size")


@dataclass(frozen=True, kw_only=True)
class Config(Place):
    """Everything. `yaml` is the same as text, as a run writes it down: without rank, world_size."""

    seed: int = _key(_whole(0))
    deterministic: bool = _key(_flag())
    threads: int = _key(_whole(1, 1024))
    total_steps: int = _key(_whole(1))
    checkpoint: str | None = _key(
        _or_null(_text("auto, or the directory of a run or of one of its checkpoints"))
    )
    checkpoint_every: int = _key(_whole(0))
    keep_checkpoints: int = _key(_whole(1))
    env: Env = _group(env=Env)
    algo: Sac | Dqn = _group("name", sac=Sac, dqn=Dqn)
    replay: Replay = _group("sampler", uniform=Replay, weighted=Prioritized)
    model: Model = _group(model=Model)
    optim: Optim = _group(optim=Optim)
    logger: Logger = _group(logger=Logger)
    yaml: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algo.batch_size > self.replay.capacity:
            allowed = f"at most replay.capacity={self.replay.capacity}, or a larger capacity"
            refuse("algo.batch_size", self.algo.batch_size, allowed)
        self.check_ranks(1)

    def check_ranks(self, num_ranks: int) -> None:
        """Refuses what so many ranks cannot do."""
        n_step, starts = self.algo.n_step, self.algo.learning_starts
        if starts <= n_step * num_ranks:
            ranks = f" times {num_ranks} ranks" if num_ranks > 1 else ""
            allowed = f"more than algo.n_step={n_step}{ranks}, so that a whole transition is stored"
            refuse("algo.learning_starts", starts, allowed)


def read_place(cfg: DictConfig) -> Place:
    """Of a whole configuration the part that is needed first; raises InvalidArgument."""
    return _read(Place, _values(cfg), "")


def read(cfg: DictConfig) -> Config:
    """Checks every value; raises InvalidArgument naming the key, the value and what is allowed.

    What a user added with `+key=value` stays in `yaml` and means nothing to the run.
    """
    kept = OmegaConf.create(_values(cfg))
    kept.rank = kept.world_size = None  # of this launch only
    return _read(Config, _values(cfg), "", yaml=OmegaConf.to_yaml(kept))


def of_the_run(cfg: DictConfig) -> dict[str, Any]:
    """Every key with its value, but for those that each rank has its own of."""
    return {k: v for k, v in _flat(_values(cfg), "") if k not in OF_A_RANK}


def _flat(values: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def refuse(key: str, value: object, allowed: str) -> NoReturn:
    """Raises InvalidArgument; the value as YAML writes it."""
    shown = value
    if value is None or isinstance(value, bool):
        shown = "null" if value is None else str(value).lower()
    raise gear.InvalidArgument(f"[train] {key}={shown} is not possible: give {allowed}")


def _values(cfg: DictConfig) -> dict[Any, Any]:
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    return values


def _read(kind: type[G], values: object, key: str, **more: Any) -> G:
    """An object of `kind` from the mapping `values`, which stands at `key`."""
    if not isinstance(values, Mapping):
        refuse(key.rstrip("."), values, "a group: its keys and values")
    given = dict(more)
    for each in fields(kind):
        if each.name in more:
            continue
        name = key + each.name
        if each.name not in values:
            check = each.metadata.get("check")
            allowed = check.allowed if check else f"{name}=OPTION, a file of conf/{each.name}"
            raise gear.InvalidArgument(f"[train] {name} is missing: add +{name}=..., {allowed}")
        value = values[each.name]
        if "kinds" in each.metadata:
            value = _read(_kind_of(each.metadata, value, name), value, f"{name}.")
        given[each.name] = value
    return kind(**given)


def _kind_of(metadata: Mapping[str, Any], values: object, name: str) -> type[ConfigGroup]:
    kinds: Mapping[str, type[ConfigGroup]] = metadata["kinds"]
    by: str = metadata["by"]
    if not by or not isinstance(values, Mapping):
        return next(iter(kinds.values()))
    chosen = values.get(by)
    if not isinstance(chosen, str) or chosen not in kinds:
        refuse(f"{name}.{by}", chosen, "one of " + ", ".join(kinds))
    return kinds[str(chosen)]
