"""Reports of ranks that never ran."""

from __future__ import annotations

from dataclasses import replace

import gear.emu as emu
from gear.emu.models.curve import BASES


def operation(
    name: str, calls: int, size: int, modelled_s: float, waited_s: float
) -> emu.Operation:
    seconds = dict.fromkeys(BASES, 0.0) | {"given": modelled_s}
    return emu.Operation(name, calls, size, seconds, waited_s, late_calls=0, late_s=0.0)


def report(step_s: float | None = 0.1, steps: int = 10, **changes: object) -> emu.Report:
    whole = emu.Report(
        operations=(),
        steps=steps,
        step_s=None if step_s is None else (step_s * 0.9, step_s, step_s * 1.2),
        in_steps=(operation("all_reduce", 2 * steps, 4096 * steps, 0.01 * steps, 0.004 * steps),),
        process_peak_bytes=1 << 30,
        program="train.py",
    )
    return replace(whole, **changes)  # type: ignore[arg-type]
