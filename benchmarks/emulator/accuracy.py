#!/usr/bin/env python3
"""Compares two real ranks with one real and one emulated: collectives, and steps of the evaluation
set. All rows are printed, the worst first.

    torchrun --nproc-per-node 2 --no-python gear emu calibrate --out links.json
    python benchmarks/emulator/accuracy.py --links links.json --json out.json

Each program runs once by torchrun on NCCL (gloo without GPUs) and once under gear_emu, turn by
turn, --rounds times; and, all ranks real and nothing held, by gear_emu: what the emulator itself
costs. Medians of all steps, and their quartiles. Peak memory is torch's allocator's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import gear.emu as emu

HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "resnet152 ddp": ("resnet152", "--by=ddp"),
    "vgg19 ddp": ("vgg19", "--by=ddp"),
    "bert-large ddp": ("bert-large", "--by=ddp"),
    "deepfm ddp": ("deepfm", "--by=ddp"),
    "t5-large fsdp2": ("t5-large", "--by=fsdp2"),
    "decoder fsdp2": ("decoder", "--by=fsdp2"),
    "decoder fsdp2 compiled": ("decoder", "--by=fsdp2", "--compile"),
}
RANKS = 2


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--links", required=True, metavar="FILE", help="of gear emu calibrate")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--steps", type=int, default=50, metavar="N", help="%(default)s")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="%(default)s")
    parser.add_argument("--small", action="store_true", help="tiny models, for CPUs")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 2), help="%(default)s")
    parser.add_argument("--largest", type=int, default=1 << 30, metavar="BYTES")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="programs that have one of them"
    )
    return parser.parse_args()


def main() -> int:
    chosen = options()
    words = chosen.only.split(",")
    names = [name for name in PROGRAMS if any(word in name for word in words)]
    found: dict[str, Any] = {"steps": {}}

    def keep() -> None:
        if chosen.json:
            chosen.json.write_text(json.dumps(found, indent=1) + "\n")

    if "collectives".startswith(chosen.only) or "collectives" in words:
        command = [str(HERE / "operations.py"), f"--largest={chosen.largest}"]
        found["collectives"] = {way: run(way, command, chosen) for way in ("torch", "emulated")}
        show_collectives(found["collectives"])
        keep()
    for name in names:
        command = [str(HERE / "train.py"), *PROGRAMS[name], f"--steps={chosen.steps}"]
        command += ["--small"] if chosen.small else []
        of_ways: dict[str, list[Any]] = {way: [] for way in ("torch", "emulated", "all real")}
        for _ in range(chosen.rounds):
            for way, told in of_ways.items():
                told.append(run(way, command, chosen))
        found["steps"][name] = of_ways
        show_steps({name: of_ways})
        keep()
    show_steps(found["steps"])
    return 0


def run(way: str, command: list[str], chosen: argparse.Namespace) -> Any:
    """What rank 0 says."""
    with TemporaryDirectory() as folder:
        told = Path(folder, "told.json")
        program = [sys.executable, *command, f"--json={told}"]
        if way == "torch":
            # With a NCCL_HOSTID of its own each rank is a node to NCCL.
            host = 'export NCCL_HOSTID=node-$RANK; exec "$@"' if chosen.nodes > 1 else 'exec "$@"'
            launch = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
            started = [sys.executable, *launch, "--no-python", "bash", "-c", host, "-", *program]
            code = subprocess.run(started, check=False).returncode
        else:
            is_real = way == "all real"
            job = emu.Job(
                RANKS,
                per_node=RANKS // chosen.nodes,
                real=tuple(range(RANKS)) if is_real else (0,),
                links=chosen.links,
                model="none" if is_real else "two_level",
            )
            code = emu.start(job, program, folder)
        if code:
            raise SystemExit(f"{way}: {' '.join(program)} ended with {code}")
        return json.loads(told.read_text())


def show_collectives(ways: dict[str, dict[str, float]]) -> None:
    rows = []
    for name, real in ways["torch"].items():
        us = ways["emulated"][name]
        rows.append((abs(us / real - 1), f"{name:<28}{real:12.1f}{us:12.1f}{us / real - 1:+9.1%}"))
    print("collective, bytes                real us emulated us    error")
    print("\n".join(text for _, text in sorted(rows, reverse=True)))


def show_steps(found: dict[str, dict[str, list[Any]]]) -> None:
    rows = []
    for name, ways in found.items():
        steps = {way: [ms for one in told for ms in one["ms"]] for way, told in ways.items()}
        middle = {way: median(ms) for way, ms in steps.items()}
        low, _, high = quantiles(steps["torch"], n=4)
        error = middle["emulated"] / middle["torch"] - 1
        own = middle["all real"] / middle["torch"] - 1
        peaks = {way: max(one["peak"] for one in told) for way, told in ways.items()}
        memory = peaks["emulated"] / peaks["torch"] - 1 if peaks["torch"] else 0.0
        rows.append(
            (
                abs(error),
                f"{name:<24}{middle['torch']:9.2f} ({low:.2f} to {high:.2f})"
                f"{middle['emulated']:10.2f}{error:+8.1%}{middle['all real']:10.2f}{own:+8.1%}"
                f"{memory:+8.1%}",
            )
        )
    print(
        "program                 real ms (quartiles)     emulated   error  all real   error  memory"
    )
    print("\n".join(text for _, text in sorted(rows, reverse=True)))


if __name__ == "__main__":
    sys.exit(main())
