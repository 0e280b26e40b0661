"""Which steps around its anchor a batch delivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gear.arguments import check_count, check_number, check_text
from gear.errors import InvalidArgument
from gear.schema import Schema


@dataclass(frozen=True)
class Step:
    """The step at ``anchor + offset``, without a time axis: delivered as ``[B, *shape]``.

    Args:
        offset: steps from the anchor; 1 is the following step.
        column: column to read; None: the one named like the output.
        dtype: type to deliver: ``"float16"``, ``"bfloat16"`` or ``"float32"`` of a uint8 column,
            ``"float16"`` or ``"bfloat16"`` of a float32 column; None: the column's own.
        scale: with a dtype of its own, what values are multiplied by, in float32, before they are
            rounded to it (to nearest, ties to even): 1 / 255 makes pixels fractions.
    """

    offset: int = 0
    column: str | None = None
    dtype: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Window:
    """Steps ``[anchor + start, anchor + stop)``: delivered as ``[B, stop - start, *shape]``.

    A window never leaves the anchor's episode; the rows of steps that are not there are zero, and
    the batch's mask says which.

    Args:
        start, stop: steps relative to the anchor, ``start < stop``.
        column: column to read; None: the one named like the output.
        pad: ``"both"``: each step keeps its own place; ``"head"``: the steps there are move to the
            end, all padding lies before them; ``"tail"``: they move to the front.
        dtype, scale: conversion on the way, as in :class:`Step`. Padding stays zero.
    """

    start: int
    stop: int
    column: str | None = None
    pad: str = "both"
    dtype: str | None = None
    scale: float = 1.0


MOST_STEPS = (1 << 62) - 1  # from the anchor: the core checks what it can do

Outputs = Mapping[str, Step | Window]

# name, column, start, stop, pad, time axis, dtype, scale
OutputTuple = tuple[str, str, int, int, str, bool, "str | None", float]


def output_tuples(outputs: Outputs | None, schema: Schema) -> list[OutputTuple]:
    """The outputs as the core takes them; None: every column of the anchor's own step."""
    if outputs is None:
        outputs = {column.name: Step() for column in schema}
    if not isinstance(outputs, Mapping):
        raise InvalidArgument(
            f"[collect] outputs {outputs!r}: a dict of gear.Step and gear.Window by name is allowed"
        )
    return [_tuple_of(check_text("[collect] output", n), output) for n, output in outputs.items()]


def _tuple_of(name: str, output: object) -> OutputTuple:
    def steps(label: str, value: object) -> int:
        least, most = -MOST_STEPS, MOST_STEPS
        return check_count(f"[collect] output {name!r}: {label}", value, least=least, most=most)

    if isinstance(output, Step):
        start = steps("offset", output.offset)
        stop, pad, time_axis = start + 1, "both", False
    elif isinstance(output, Window):
        start, stop = steps("start", output.start), steps("stop", output.stop)
        pad, time_axis = check_text(f"[collect] output {name!r}: pad", output.pad), True
    else:
        raise InvalidArgument(
            f"[collect] output {name!r} is {output!r}: gear.Step and gear.Window are allowed"
        )
    column, dtype = output.column or name, output.dtype
    check_text(f"[collect] output {name!r}: column", column)
    if dtype is not None:
        check_text(f"[collect] output {name!r}: dtype", dtype)
    scale = check_number(f"[collect] output {name!r}: scale", output.scale)
    return (name, column, start, stop, pad, time_axis, dtype, scale)
