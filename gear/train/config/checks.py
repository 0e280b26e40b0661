"""What a key of the configuration may hold, and the base of its groups."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NoReturn

import gear

MOST = 2**63 - 1  # the core counts in int64


@dataclass(frozen=True)
class Check:
    """What a key may hold.

    Attributes:
        allowed: that, in words.
        take: the value as the run uses it; ValueError if it is not allowed.
    """

    allowed: str
    take: Callable[[Any], Any]


def key(check: Check) -> Any:
    return field(metadata={"check": check})


def one(allowed: str, fits: Callable[[Any], bool]) -> Check:
    def take(value: Any) -> Any:
        if not fits(value):
            raise ValueError
        return value

    return Check(allowed, take)


def whole(least: int, most: int = MOST) -> Check:
    words = f"of at least {least}" if most == MOST else f"from {least} to {most}"
    return one(
        f"a whole number {words}",
        lambda value: type(value) is int and least <= value <= most,
    )


def number(allowed: str = "", fits: Callable[[float], bool] = math.isfinite) -> Check:
    def take(value: Any) -> float:
        if type(value) not in (int, float) or not (math.isfinite(value) and fits(value)):
            raise ValueError
        return float(value)

    return Check(f"a number, {allowed}" if allowed else "a number", take)


def choice(*names: str) -> Check:
    return one("one of " + ", ".join(names), lambda value: value in names)


def text(allowed: str, pattern: str = ".+") -> Check:
    return one(allowed, lambda v: isinstance(v, str) and re.fullmatch(pattern, v) is not None)


def flag() -> Check:
    return one("true or false", lambda value: isinstance(value, bool))


def tuple_of(item: Check, allowed: str, *, length: int | None = None, least: int = 0) -> Check:
    def take(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) < least:
            raise ValueError
        if length is not None and len(value) != length:
            raise ValueError
        return tuple(item.take(each) for each in value)

    return Check(allowed, take)


def or_null(check: Check) -> Check:
    def take(value: Any) -> Any:
        return None if value is None else check.take(value)

    return Check(f"null or {check.allowed}", take)


def group(by: str = "", **kinds: type[ConfigGroup]) -> Any:
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


def refuse(key: str, value: object, allowed: str) -> NoReturn:
    """Raises InvalidArgument; the value as YAML writes it."""
    shown = value
    if value is None or isinstance(value, bool):
        shown = "null" if value is None else str(value).lower()
    raise gear.InvalidArgument(f"[train] {key}={shown} is not possible: give {allowed}")
