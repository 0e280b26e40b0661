#!/usr/bin/env python3
"""Measure what GEAR reaches on a GPU, and in the same run what the bare hardware does.

    python benchmarks/gpu.py --json out.json        everything, some three minutes
    python benchmarks/gpu.py --only small,weighted
    python benchmarks/gpu.py --rehearse             tiny sizes on the CPU: the figures mean nothing

The JSON holds machine, check, limits, device, pinned, framework, small, turns, weighted,
transformer, targets, seconds and failures. GB/s count delivered bytes once.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_report
import gpu_rows
import gpu_small
import gpu_targets
import gpu_transformer
import machine
import torch
from gpu_timing import Gpu, gpu_for

import gear

HERE = Path(__file__).parent


def gear_check(gpu: Gpu) -> Any:
    """What `gear check --measure` says of the machine."""
    arguments = ["check", "--json", *([] if gpu.rehearsal else ["--measure"])]
    program = f"from gear.cli.app import main; raise SystemExit(main({arguments!r}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    findings = json.loads(done.stdout)["findings"]
    return [row for row in findings if row["area"] != "environment"]  # folders of the machine


PARTS: dict[str, Callable[[Gpu], Any]] = {
    "check": gear_check,
    "turns": gpu_small.turns,  # before others look at kernels
    "small": gpu_small.small_batch,
    "weighted": gpu_small.weighted,
    "device": gpu_rows.device_rows,
    "transformer": gpu_transformer.transformer,
    "pinned": gpu_rows.pinned_rows,
    "framework": gpu_rows.framework_rows,
}


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--only", default="", metavar="PARTS", help=",".join(["limits", *PARTS]))
    parser.add_argument(
        "--limits", type=Path, metavar="FILE", help="benchmarks/limits.cu, compiled"
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, without a GPU")
    chosen = parser.parse_args(arguments)
    chosen.parts = [name for name in chosen.only.split(",") if name] or ["limits", *PARTS]
    unknown = set(chosen.parts) - {"limits", *PARTS}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are limits, {', '.join(PARTS)}")
    return chosen


def raw_limits(binary: Path | None) -> list[dict[str, Any]]:
    """The lines of benchmarks/limits.cu, compiled first where need be."""
    if binary is None:
        binary = HERE.parent / "build" / "gpu" / "limits"
        binary.parent.mkdir(parents=True, exist_ok=True)
        command = ["nvcc", "-std=c++17", "-O3", "-arch=native", "-o", str(binary)]
        subprocess.run([*command, str(HERE / "limits.cu")], check=True)
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return lines


def facts(gpu: Gpu, only: str) -> dict[str, Any]:
    found = machine.facts() | {
        "command": "python benchmarks/gpu.py" + (f" --only {only}" if only else ""),
        "gear": gear.__version__,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "rehearsal": gpu.rehearsal,
    }
    if gpu.rehearsal:
        return found | {"gpu": "none: a rehearsal"}
    query = "name,driver_version,pcie.link.gen.current,pcie.link.width.current,clocks.max.sm"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "-i", "0"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return found | {
        "gpu": torch.cuda.get_device_name(0),
        "cuda": torch.version.cuda,
        "nvidia_smi": asked.stdout.strip() or asked.stderr.strip(),
    }


def main(arguments: list[str] | None = None) -> int:
    chosen = options(arguments)
    gpu = gpu_for("gpu", rehearse=chosen.rehearse, share=1e-4)
    if gpu is None:
        return 2
    report: dict[str, Any] = {"machine": facts(gpu, chosen.only), "seconds": {}, "failures": {}}
    limits = gpu_targets.Limits([])

    def run(name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        try:
            return work()
        except Exception:  # noqa: BLE001  # the other parts are worth having
            report["failures"][name] = traceback.format_exc()
            print(f"gpu: {name} failed:\n{report['failures'][name]}", file=sys.stderr, flush=True)
            return None
        finally:
            report["seconds"][name] = round(time.perf_counter() - began, 1)
            print(f"gpu: {name}: {report['seconds'][name]} s", flush=True)

    def keep() -> None:
        gpu_targets.add_shares(report, limits)
        report["targets"] = gpu_targets.targets(report)
        if chosen.json:
            chosen.json.write_text(json.dumps(report, indent=1) + "\n")

    for name in chosen.parts:
        if name == "limits":
            if not gpu.rehearsal:
                lines = run(name, lambda: raw_limits(chosen.limits)) or []
                report["limits"] = lines
                limits = gpu_targets.Limits(lines)
            continue
        found = run(name, functools.partial(PARTS[name], gpu))
        if found is not None:
            report[name] = found
        keep()  # a run that is stopped has what it measured
    gpu_report.show(report)
    return 1 if report["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
