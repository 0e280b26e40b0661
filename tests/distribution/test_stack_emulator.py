"""`gear emu run` of the module, whose real ranks DeepSpeed starts, and shards over all ranks."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest
from ports import fresh_port

from distribution.conftest import Installation
from distribution.in_module import after_load
from distribution.project import REPOSITORY

pytestmark = [pytest.mark.modules, pytest.mark.nightly]
PROGRAM = REPOSITORY / "tests" / "emu" / "sharded_by_deepspeed.py"
LAUNCHER = "deepspeed --no_python --no_local_rank --num_accelerators 2"


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize("real", ["0,1", "all"])
def test_deepspeed_starts_the_real_ranks(
    installation: Installation, tmp_path: Path, real: str, stage: int
) -> None:
    size = 2 if real == "all" else 64
    after_load(
        installation,
        f"cd {shlex.quote(str(tmp_path))}",
        f"{LAUNCHER} --master_port {fresh_port()} gear emu run -N {size} --real {real} --out out"
        f" -- python {PROGRAM} {stage} >said",
        env={"DS_ACCELERATOR": "cpu"},
    )
    said = (tmp_path / "said").read_text()
    told = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sorted(one["rank"] for one in told) == [0, 1]
    for one in told:
        assert one["size"] == size
        assert all(map(math.isfinite, one["losses"]))
        report = json.loads((tmp_path / "out" / f"rank-{one['rank']}.json").read_text())
        assert report["steps"] == 3  # of 5: the first two do not count
        assert report["sharded"] == ("DeepSpeed" if stage == 3 else "")
