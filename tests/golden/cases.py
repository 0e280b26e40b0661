"""The golden cases: law x unit x outputs x ranks x eviction, and variants of some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import gear

Outputs = dict[str, "gear.Step | gear.Window | gear.Derived"]


def _windows(pad: str) -> Outputs:
    return {
        "number": gear.Window(-5, 4, pad=pad),
        "obs": gear.Window(-2, 3, pad=pad),
        "frame": gear.Window(-3, 1, pad=pad),
        "far": gear.Window(-40, 1, column="done", pad=pad),
        "terminated": gear.Terminated(gear.Window(-1, 3, pad=pad)),
        "last": gear.IsLast(gear.Window(0, 2, pad=pad)),
        "index": gear.StepIndex(gear.Window(-2, 2, pad=pad)),
    }


OUTPUTS: dict[str, Outputs] = {
    "step": {name: gear.Step() for name in ("number", "obs", "frame", "done")},
    "behind": {
        "number": gear.Window(-3, 1),
        "obs": gear.Step(-1),
        "index": gear.StepIndex(),
    },
    "nstep": {
        "number": gear.Step(),
        "obs": gear.Step(),
        "rewards": gear.Window(0, 3, column="done", pad="tail"),
        "next_obs": gear.Step(3, column="obs"),
        "terminated": gear.Terminated(gear.Window(0, 3)),
    },
    "both": _windows("both"),
    "head": _windows("head"),
    "tail": _windows("tail"),
    "packed": _windows("both"),
    "cast": {
        "pixels": gear.Window(-1, 2, column="frame", dtype="float32", scale=1 / 255),
        "half": gear.Step(column="frame", dtype="float16", scale=1 / 255),
        "brain": gear.Step(1, column="frame", dtype="bfloat16"),
        "obs": gear.Window(-2, 1, dtype="bfloat16", scale=0.3),
        "small": gear.Step(column="obs", dtype="float16", scale=1e-4),
    },
}
LAWS = ["uniform", "weighted", "shuffled", "in_order", "fifo", "lifo", "topk"]
UNITS = ["step", "episode"]
RANKS = [1, 2, 4]
EVICTIONS = ["fifo", "lifo", "lowest_priority"]
VARIANTS = {
    "room": "pages are free",
    "spent": "max_times_sampled=3",
    "long_pages": "pages of 16 steps",
    "no_prefetch": "prefetch=0",
    "strong": "alpha=beta=1 (of weighted), drop_last (of epochs)",
    "nodes": "several nodes: two ranks each, or one",
    "locality_off": "locality='off', over several nodes",
    "large": "batches that are gathered by several threads and drawn by wide instructions",
}
OF_GROUPS = {"nodes", "locality_off"}
# GEAR refuses the other laws over a buffer with max_times_sampled: over many ranks, of one rank.
SPENDING = {True: {"fifo", "lifo", "topk"}, False: {"uniform", "weighted", "fifo", "lifo", "topk"}}


@dataclass(frozen=True)
class Case:
    """One buffer and loader on each rank; a variant is one of VARIANTS, or empty."""

    law: str
    unit: str
    outputs: str
    ranks: int
    evict: str
    variant: str = ""

    @property
    def name(self) -> str:
        parts = (self.law, self.unit, self.outputs, str(self.ranks), self.evict, self.variant)
        return "-".join(filter(None, parts))

    @property
    def epochs(self) -> bool:
        """An epoch's content stays as it is."""
        return self.law in ("shuffled", "in_order")

    def sampler(self) -> gear.Sampler:
        strong = self.variant == "strong"
        if self.law == "uniform":
            return gear.Uniform(unit=self.unit)
        if self.law == "weighted":
            alpha, beta = (1.0, 1.0) if strong else (0.6, 0.4)
            return gear.Weighted(unit=self.unit, alpha=alpha, beta=beta)
        if self.epochs:
            shuffle = self.law == "shuffled"
            return gear.Sequential(unit=self.unit, shuffle=shuffle, drop_last=strong)
        return {"fifo": gear.Fifo, "lifo": gear.Lifo, "topk": gear.TopK}[self.law](unit=self.unit)

    @property
    def batch_size(self) -> int:
        """Of each rank; epochs end within the batches that are drawn."""
        if self.variant == "large":
            return 300 if self.unit == "episode" else 20_000
        if self.unit == "episode":
            return 5
        return 40 if self.epochs else 7

    @property
    def halves(self) -> int:
        """Of the buffer's capacity, that are stored before the first batch."""
        return 1 if self.variant == "room" else 3

    def buffer_arguments(self) -> dict[str, Any]:
        found: dict[str, Any] = {"capacity": 160, "page_steps": 4, "evict": self.evict}
        if self.variant == "long_pages":
            found |= {"capacity": 480, "page_steps": 16}
        if self.variant == "large":  # pages of 64 steps by default
            found |= {"capacity": 65_536, "page_steps": None}
        if self.variant == "spent":
            found["max_times_sampled"] = 3
        return found

    def loader_arguments(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "sampler": self.sampler(),
            "outputs": OUTPUTS[self.outputs],
            "packed": self.outputs == "packed",
            "prefetch": 0 if self.variant == "no_prefetch" else 2,
            "seed": 77,
            "locality": "off" if self.variant == "locality_off" else "first",
        }

    @property
    def ranks_per_node(self) -> int:
        if self.variant not in OF_GROUPS:
            return self.ranks
        return 1 if self.ranks == 2 else 2


def all_cases() -> list[Case]:
    """Sorted by name. All outputs under one eviction; two outputs under all; variants of one."""
    found = {case.name: case for case in _all_cases()}
    return [found[name] for name in sorted(found)]


def _is_possible(case: Case) -> bool:
    if case.variant == "spent":
        return case.law in SPENDING[case.ranks > 1]
    if case.variant == "strong":
        return case.law == "weighted" or case.epochs
    if case.variant == "large":
        return case.ranks == 1 or (case.ranks == 2 and case.law == "weighted")
    return case.ranks > 1 or case.variant not in OF_GROUPS


def _all_cases() -> Iterator[Case]:
    for law, unit, ranks in product(LAWS, UNITS, RANKS):
        for outputs in OUTPUTS:
            yield Case(law, unit, outputs, ranks, "fifo")
        for outputs, evict in product(("step", "both"), EVICTIONS):
            yield Case(law, unit, outputs, ranks, evict)
        plain = Case(law, unit, "both", ranks, "fifo")
        varied = [replace(plain, variant=variant) for variant in VARIANTS]
        yield from filter(_is_possible, varied)
