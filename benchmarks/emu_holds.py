#!/usr/bin/env python3
"""Measure gear_emu by the wall clock: how late holds end, what a call costs, and whether a job
takes the same whichever of its ranks are real.

    tools/c10d.sh --emulator                      # once
    python benchmarks/emu_holds.py --json out.json

late: an all_reduce of one real rank of two, whose model says 0.2, 2 or 20 ms: what it took beyond
that, call included; median and the 95th of 100. Who has slept finds cold caches, which is no
lateness of a hold: so beside it what a call takes after a sleep as long, of a broadcast that is
held for nothing, and of an all_reduce of torch's own backend "fake", which does nothing. a call:
an all_reduce that takes nothing by its model, beside one of "fake"; they take turns. a step:
DistributedDataParallel of four ranks, whose forward sleeps (ranks need no core each) and whose one
bucket is held for 20 ms, with all four real, with two, with one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

import machine
import repeats
import report

import gear.emu as emu

HERE = Path(__file__).resolve()
REAL = {"4 real": (0, 1, 2, 3), "2 real, 2 emulated": (0, 1), "1 real, 3 emulated": (0,)}
HOLDS = {"link_200_us": 200e-6, "link_2_ms": 2e-3, "link_20_ms": 20e-3}
SLEEP_S = 0.05
CALLS = 1000


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="%(default)s")
    parser.add_argument("--steps", type=int, default=30, metavar="N", help="of a job: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--part", choices=("late", "call", "step"), help=argparse.SUPPRESS)
    parser.add_argument("--model", default="nothing", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    if chosen.part:
        PARTS[chosen.part](chosen)
        return 0
    outcome: dict[str, Any] = {
        "machine": machine.facts(),
        "rounds": chosen.rounds,
        "late_us": {model: late(model, chosen.rounds) for model in HOLDS},
        "call_us": calls(chosen.rounds),
        "step_ms": steps(chosen.rounds, chosen.steps),
    }
    show(outcome)
    if chosen.json:
        chosen.json.write_text(json.dumps(outcome, indent=1) + "\n")
    return 0


def late(model: str, rounds: int) -> dict[str, repeats.Span]:
    found = [told("late", model) for _ in range(rounds)]
    return {name: repeats.span([one[name] for one in found]) for name in found[0]}


def calls(rounds: int) -> dict[str, repeats.Span]:
    found = [told("call", "nothing") for _ in range(rounds)]
    spans = {name: repeats.span([one[name] for one in found]) for name in ("gear_emu", "fake")}
    spans["over fake"] = repeats.span([one["gear_emu"] - one["fake"] for one in found])
    return spans


def told(part: str, model: str) -> dict[str, float]:
    """What a process of its own says of a part."""
    command = [sys.executable, str(HERE), f"--part={part}", f"--model={model}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def steps(rounds: int, num_steps: int) -> dict[str, repeats.Span]:
    """Medians of a step's milliseconds on rank 0; the jobs take turns."""
    found: dict[str, list[float]] = {name: [] for name in REAL}
    for _ in range(rounds):
        for name, real in REAL.items():
            found[name].append(step_of(real, num_steps))
    spans = {name: repeats.span(values) for name, values in found.items()}
    first = found[next(iter(REAL))]
    for name in list(REAL)[1:]:
        apart = [100 * (ms / all_ms - 1) for ms, all_ms in zip(found[name], first, strict=True)]
        spans[f"{name}: % from all"] = repeats.span(apart)
    return spans


def step_of(real: tuple[int, ...], num_steps: int) -> float:
    job = emu.Job(4, real=real, model="emu_held:link_20_ms")
    command = [sys.executable, str(HERE), "--part=step", f"--steps={num_steps}"]
    with TemporaryDirectory() as out:
        if code := emu.start(job, command, out):
            raise SystemExit(code)
        done = json.loads(Path(out, "rank-0.json").read_text())
    return 1e3 * float(done["step_s"][1])


# ---- what a process of a part does ----


def measure_late(chosen: argparse.Namespace) -> None:
    dist = joined(chosen.model)
    import torch
    import torch.testing._internal.distributed.fake_pg  # the backend "fake"

    fake = dist.new_group([0, 1], backend="fake")
    one, wanted = torch.ones(1), HOLDS[chosen.model]
    found: dict[str, list[float]] = {name: [] for name in ("held", "slept", "slept, fake")}
    for _ in range(110):
        found["held"].append(timed(lambda: dist.all_reduce(one), 1) - wanted)
        time.sleep(wanted)
        found["slept"].append(timed(lambda: dist.broadcast(one, 0), 1))
        time.sleep(wanted)
        found["slept, fake"].append(timed(lambda: dist.all_reduce(one, group=fake), 1))
    figures: dict[str, float] = {}
    for name, seconds in found.items():
        cuts = quantiles([1e6 * one for one in seconds[10:]], n=20, method="inclusive")
        figures |= {f"{name}: median": cuts[9], f"{name}: p95": cuts[18]}
    say(figures)


def measure_call(chosen: argparse.Namespace) -> None:
    dist = joined(chosen.model)
    import torch
    import torch.testing._internal.distributed.fake_pg  # the backend "fake"

    fake = dist.new_group([0, 1], backend="fake")
    one = torch.ones(1)
    names: dict[str, Callable[[], object]] = {
        "gear_emu": lambda: dist.all_reduce(one),
        "fake": lambda: dist.all_reduce(one, group=fake),
    }
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(11):
        for name, call in names.items():
            found[name].append(1e6 * timed(call, CALLS) / CALLS)
    say({name: sorted(values)[len(values) // 2] for name, values in found.items()})


def take_steps(chosen: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn

    class Slept(nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            time.sleep(SLEEP_S)
            return super().forward(given)

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = nn.parallel.DistributedDataParallel(Slept(16, 1))
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(chosen.steps):
        optimiser.zero_grad()
        net(torch.ones(4, 16)).sum().backward()
        optimiser.step()
    dist.destroy_process_group()


def joined(model: str) -> Any:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    emu.install(emu.Job(2, model=f"emu_held:{model}"))
    dist.init_process_group("gear_emu")
    return dist


def timed(call: Callable[[], object], times: int) -> float:
    """Seconds of all of them."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began


def say(figures: dict[str, float]) -> None:
    print(json.dumps(figures))


PARTS = {"late": measure_late, "call": measure_call, "step": take_steps}


def show(outcome: dict[str, Any]) -> None:
    rows = [
        [f"{model}, {who}", *(report.ranged(spans[f"{who}: {name}"]) for name in ("median", "p95"))]
        for model, spans in outcome["late_us"].items()
        for who in ("held", "slept", "slept, fake")
    ]
    report.table("a hold ends late by", ["", "median us", "95th us"], rows)
    for title, name in (("a call", "call_us"), ("a step", "step_ms")):
        rows = [[who, report.ranged(one)] for who, one in outcome[name].items()]
        report.table(title, ["", name.rpartition("_")[2]], rows)


if __name__ == "__main__":
    sys.exit(main())
