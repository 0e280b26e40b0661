"""Models of one time for each operation but broadcasts, which take none."""

from __future__ import annotations

import gear.emu as emu

SIZES = [0, *(1 << power for power in range(44))]


def constant(seconds: float) -> emu.Curve:
    return emu.Curve.of([(size, seconds) for size in SIZES], "given")


def nothing(operation: str, shape: emu.Shape, links: emu.Links) -> emu.Curve:
    return constant(0.0)


def link_200_us(operation: str, shape: emu.Shape, links: emu.Links) -> emu.Curve:
    return constant(0 if operation == "broadcast" else 200e-6)


def link_2_ms(operation: str, shape: emu.Shape, links: emu.Links) -> emu.Curve:
    return constant(0 if operation == "broadcast" else 2e-3)


def link_20_ms(operation: str, shape: emu.Shape, links: emu.Links) -> emu.Curve:
    return constant(0 if operation == "broadcast" else 20e-3)
