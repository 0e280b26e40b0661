"""Outputs of a batch: the steps around each anchor that it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gear.arguments import check_count, check_number, check_text
from gear.errors import InvalidArgument
from gear.schema import Schema, dtype_name


@dataclass(frozen=True)
class Step:
    """The step at ``anchor + offset``, without a time axis: delivered as ``[B, *shape]``.

    Args:
        offset: steps from the anchor; 1 is the following step.
        column: column to read; None: the one with the output's name.
        dtype: type to deliver: ``"float16"``, ``"bfloat16"`` or ``"float32"`` from a uint8 column,
            ``"float16"`` or ``"bfloat16"`` from a float32 column; None: the column's own.
        scale: factor for the values, only with ``dtype``. GEAR multiplies in float32, then rounds
            to ``dtype`` (to nearest, ties to even): 1 / 255 makes pixels fractions.
    """

    offset: int = 0
    column: str | None = None
    dtype: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Window:
    """Steps ``[anchor + start, anchor + stop)``: delivered as ``[B, stop - start, *shape]``.

    A window never leaves the anchor's episode. Rows without a step are zero, and the batch's mask
    says which.

    Args:
        start, stop: steps relative to the anchor, ``start < stop``.
        column: column to read; None: the one with the output's name.
        pad: ``"both"``: each step keeps its place. ``"head"``: steps move to the end, behind all
            padding. ``"tail"``: steps move to the front.
        dtype, scale: conversion, as in :class:`Step`. Padding stays zero.
    """

    start: int
    stop: int
    column: str | None = None
    pad: str = "both"
    dtype: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Derived:
    """Base of the outputs that tell something else of a step than its columns; not used by itself.

    Args:
        steps: the steps to tell of: a `Step` or a `Window`, without column, dtype and scale. For a
            missing step and for a closing step, the mask is False and the value zero.
    """

    derived: ClassVar[str]
    steps: Step | Window = Step()


@dataclass(frozen=True)
class Terminated(Derived):
    """True at the last step of an episode that terminated; bool.

    A TD target multiplies the next value by ``(1 - terminated)``. In an episode that was cut off
    (truncated) no step has it: there the next value counts, and belongs to the closing step, the
    ``final`` of `Writer.end_episode`.
    """

    derived: ClassVar[str] = "terminated"


@dataclass(frozen=True)
class IsLast(Derived):
    """True at the last step of an episode that has ended, terminated or truncated; bool.

    A step of an open episode is offered once another step follows it.
    """

    derived: ClassVar[str] = "is_last"


@dataclass(frozen=True)
class StepIndex(Derived):
    """The step's number in its episode, from 0; evicted steps count; int64."""

    derived: ClassVar[str] = "step_index"


MOST_STEPS = (1 << 62) - 1  # from the anchor: the core checks what it can do

Outputs = Mapping[str, Step | Window | Derived]

# name, column, start, stop, pad, time axis, dtype, scale, what is derived in place of a column
OutputTuple = tuple[str, str, int, int, str, bool, "str | None", float, str]
OUTPUT_FIELDS = (
    "name",
    "column",
    "start",
    "stop",
    "pad",
    "time_axis",
    "dtype",
    "scale",
    "derived",
)


def output_tuples(outputs: Outputs | None, schema: Schema) -> list[OutputTuple]:
    """The outputs as the core takes them; None: every column of the anchor's own step."""
    if outputs is None:
        outputs = {column.name: Step() for column in schema}
    if not isinstance(outputs, Mapping):
        raise InvalidArgument(
            f"[loader] outputs {outputs!r}: give a dict from names to gear.Step, gear.Window and "
            "the like"
        )
    return [_tuple_of(check_text("[loader] output", n), output) for n, output in outputs.items()]


def output_numbers(tuples: list[OutputTuple]) -> dict[str, int]:
    """By name, the numbers that a batch of the core gives to these outputs: columns first."""
    order = sorted(range(len(tuples)), key=lambda i: tuples[i][-1] != "")
    return {row[0]: order.index(i) for i, row in enumerate(tuples)}


def _tuple_of(name: str, output: object) -> OutputTuple:
    label = f"[loader] output {name!r}"

    def steps(what: str, value: object) -> int:
        return check_count(f"{label}: {what}", value, least=-MOST_STEPS, most=MOST_STEPS)

    derived, of = "", output
    if isinstance(output, Derived) and type(output) is not Derived:
        derived, of = output.derived, output.steps
    if isinstance(of, Step):
        start = steps("offset", of.offset)
        stop, pad, time_axis = start + 1, "both", False
    elif isinstance(of, Window):
        start, stop = steps("start", of.start), steps("stop", of.stop)
        pad, time_axis = check_text(f"{label}: pad", of.pad), True
    else:
        raise InvalidArgument(
            f"{label} is {output!r}: gear.Step, gear.Window, gear.Terminated, gear.IsLast and "
            "gear.StepIndex are allowed"
        )
    if derived and (of.column, of.dtype, of.scale) != (None, None, 1.0):
        raise InvalidArgument(
            f"{label} is {output!r}: its steps take no column, dtype or scale; leave them out"
        )
    column = of.column or name
    check_text(f"{label}: column", column)
    dtype = None if of.dtype is None else dtype_name(of.dtype)
    scale = check_number(f"{label}: scale", of.scale)
    return (name, column, start, stop, pad, time_axis, dtype, scale, derived)
