"""The contents of one step: named columns, each with a shape and a dtype."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

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


def dtype_name(dtype: object) -> str:
    """The one of `DTYPES` that `dtype` means: a dtype of NumPy, torch or JAX, a type of Python, or
    a text that NumPy reads. Else its own name, which the core refuses."""
    name = str(dtype).removeprefix("torch.")
    if name in DTYPES or dtype is None:
        return name
    try:
        found: np.dtype[np.generic] = np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return str(getattr(dtype, "__name__", name))
    if found.isnative and found.name in DTYPES:
        return found.name
    return str(getattr(dtype, "__name__", name))


@dataclass(frozen=True)
class Column:
    """One named array per step.

    Args:
        name: 1 to 63 letters, digits and ``_ . / -``; not ``priority``, which writers use.
        shape: shape of one step; ``()`` is a scalar.
        dtype: one of `DTYPES`, or what NumPy, torch or JAX calls one: ``"f4"``, ``float`` (which
            is float64), ``numpy.float32``, ``torch.float32``.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
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
        InvalidArgument: no column, more than 64 columns, a repeated or ill-formed name, a name
            ``a`` beside ``a/b``, an unknown dtype, a dimension below 1.
    """

    def __init__(self, columns: Iterable[Column]) -> None:
        self._columns = tuple(columns)
        for column in self._columns:
            if not isinstance(column, Column):
                raise InvalidArgument(
                    f"[schema] {column!r} is no column: give gear.Column(name, shape, dtype)"
                )
        self._step_bytes, self._hash = _core.describe_schema(self.as_tuples())
        for column in self._columns:
            self._refuse_folder(column.name)

    @classmethod
    def stored(cls, columns: Iterable[tuple[str, list[int], str]]) -> Schema:
        """That of stored steps, `as_tuples`, whatever names were allowed when they were stored."""
        schema = cls.__new__(cls)
        schema._columns = tuple(Column(name, tuple(shape), dtype) for name, shape, dtype in columns)
        schema._step_bytes, schema._hash = _core.describe_schema(schema.as_tuples())
        return schema

    def _refuse_folder(self, name: str) -> None:
        """Refuses a name that is a folder in another column's."""
        for column in self._columns:
            if column.name.startswith(f"{name}/"):
                raise InvalidArgument(
                    f"[schema] columns {name!r} and {column.name!r}: a name stands for a column or "
                    "for the columns below it, not for both; rename one"
                )

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
