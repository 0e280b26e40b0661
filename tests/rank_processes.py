"""Runs a program as every rank of a group, a process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ports import fresh_port

WORKER = Path(__file__).parent / "gpu" / "group_worker.py"


def run_ranks(
    ranks: int,
    cases: Sequence[Any],
    variables: Callable[[int], dict[str, str]] = lambda _: {},
    *,
    program: Path = WORKER,
    timeout_s: float = 240,
) -> list[Any]:
    """What each rank says of the cases, which the program takes as JSON.

    Raises:
        RuntimeError: with the end of the output of the ranks that failed.
    """
    meeting = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(fresh_port()),
        "WORLD_SIZE": str(ranks),
    }
    started = [
        subprocess.Popen(
            [sys.executable, str(program), json.dumps(list(cases))],
            env=os.environ | meeting | {"RANK": str(rank)} | variables(rank),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=timeout_s) for process in started]
    finally:
        for process in started:
            process.kill()
    failed = [
        f"rank {rank}: exit code {process.returncode}\n{out[-1000:]}\n{err[-3000:]}"
        for rank, (process, (out, err)) in enumerate(zip(started, said, strict=True))
        if process.returncode
    ]
    if failed:
        raise RuntimeError("\n".join(failed))
    return [json.loads(out.splitlines()[-1]) for out, _ in said]
