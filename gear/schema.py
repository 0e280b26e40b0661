"""The contents of one step: named columns, each with a shape and a dtype."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gear import _core
from gear.errors import InvalidArgument

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)


@dataclass(frozen=True)
class Column:
    """One named array per step.

    Args:
        name: 1 to 63 letters, digits and ``_ . / -``; not ``priority``, which writers use.
        shape: shape of one step; ``()`` is a scalar.
        dtype: one of `DTYPES`, or an object whose ``str`` or ``__name__`` names one
            (``numpy.float32``, ``numpy.dtype("f4")``).
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        dtype: object = self.dtype
        if not isinstance(dtype, str):
            object.__setattr__(self, "dtype", getattr(dtype, "__name__", str(dtype)))
        shape: object = self.shape
        try:
            if isinstance(shape, str):
                raise TypeError
            dims = tuple(operator.index(dim) for dim in self.shape)
        except TypeError:
            raise InvalidArgument(
                f"[schema] column {self.name!r} has shape {shape!r}: a tuple of integers is "
                "allowed, () for a scalar"
            ) from None
        object.__setattr__(self, "shape", dims)


class Schema:
    """The columns of a step, in order; immutable.

    Raises:
        InvalidArgument: no column, more than 64 columns, a repeated or ill-formed name, an unknown
            dtype, a dimension below 1.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = tuple(columns)
        for column in self._columns:
            if not isinstance(column, Column):
                raise InvalidArgument(
                    f"[schema] {column!r} is no column: give gear.Column(name, shape, dtype)"
                )
        self._step_bytes, self._hash = _core.describe_schema(self.as_tuples())

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in the order given."""
        return self._columns

    @property
    def step_bytes(self) -> int:
        """Bytes of one step over all columns, without padding."""
        return self._step_bytes

    @property
    def hash(self) -> str:
        """16 hexadecimal digits over name, dtype, shape and order of all columns."""
        return self._hash

    def as_tuples(self) -> list[tuple[str, list[int], str]]:
        """The columns as (name, shape, dtype)."""
        return [(column.name, list(column.shape), column.dtype) for column in self._columns]

    def __getitem__(self, name: str) -> Column:
        for column in self._columns:
            if column.name == name:
                return column
        known = ", ".join(column.name for column in self._columns)
        raise InvalidArgument(f"[schema] no column {name!r}: the schema has {known}")

    def __contains__(self, name: object) -> bool:
        return any(column.name == name for column in self._columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._columns == other._columns

    def __hash__(self) -> int:
        return hash(self._columns)

    def __repr__(self) -> str:
        return f"Schema({list(self._columns)!r})"
