"""Ranks that a server forks, which has imported torch once for all of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ports import fresh_port

RANKS = Path(__file__).with_name("group_ranks.py")
Run = Callable[..., list[dict[str, Any]]]


def plain(size: int, **more: str) -> list[dict[str, str]]:
    """The variables of ranks started by hand."""
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(fresh_port())}
    master["WORLD_SIZE"] = str(size)
    return [{**master, "RANK": str(rank), **more} for rank in range(size)]


def clean_environment() -> dict[str, str]:
    """This process's, without what a launcher may have put there."""
    launchers = ("SLURM_", "OMPI_", "PMI", "MV2_", "HOROVOD_", "TORCHELASTIC_", "MASTER_", "GEAR_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(launchers) and name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    }


def results_in(text: str) -> list[dict[str, Any]]:
    """What ranks printed; a launcher may have put two of them on one line."""
    starts = [found.end() for found in re.finditer("RESULT ", text)]
    return [json.JSONDecoder().raw_decode(text, start)[0] for start in starts]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """run(scenario, places) -> the result of every rank; {} where it was killed."""
    server = subprocess.Popen(
        [sys.executable, RANKS, "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def ask(
        scenario: str, places: Sequence[dict[str, str]], killed: Sequence[int] = ()
    ) -> list[dict[str, Any]]:
        server.stdin.write(json.dumps([scenario, places]) + "\n")
        server.stdin.flush()
        ranks = json.loads(server.stdout.readline())
        codes = [-9 if rank in killed else 0 for rank in range(len(places))]
        assert [code for code, _ in ranks] == codes, "\n".join(text for _, text in ranks)
        return [
            {**results_in(text)[0], "output": text} if code == 0 else {} for code, text in ranks
        ]

    yield ask
    server.stdin.close()
    server.stdout.close()
    server.wait()
