"""`gear emu trace`: one trace of what the real ranks of a run have left."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import gear.emu as emu
from gear.cli.app import main

PLAIN = Path(__file__).with_name("plain.py")


def test_a_folder_without_a_run(tmp_path, capsys) -> None:
    assert main(["emu", "trace", str(tmp_path)]) == 2
    assert "has no job.toml: give the folder of a gear emu run --out" in capsys.readouterr().err
    emu.Job(8).save(tmp_path / "job.toml")
    (tmp_path / "rank-x.csv").touch()
    assert main(["emu", "trace", str(tmp_path)]) == 2
    assert "real ranks that have made groups leave rank-*.csv" in capsys.readouterr().err
    (tmp_path / "rank-x.csv").unlink()
    (tmp_path / "rank-0.csv").write_text("a,b\n1,2\n")
    assert main(["emu", "trace", str(tmp_path)]) == 2
    assert "rank-0.csv is no log of gear_mpi" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_operations_waits_and_steps_of_each_real_rank(tmp_path, warm, capfd) -> None:
    began = time.time() * 1e6
    words = ["-N", "512", "--real", "0,9", "--out", str(tmp_path)]
    (tmp_path / "rank-5.csv").write_text("of an earlier run")
    assert main(["emu", "run", *words, "--", str(warm / "python"), str(PLAIN), "gloo"]) == 0
    assert not (tmp_path / "rank-5.csv").exists()
    (tmp_path / "rank-5.csv").write_text("start_us,duration_us,group\n")  # of no real rank
    capfd.readouterr()
    assert main(["emu", "trace", str(tmp_path)]) == 0
    events = json.loads(capfd.readouterr().out)["traceEvents"]
    named = {
        (one["pid"], one.get("tid")): one["args"]["name"] for one in events if one["ph"] == "M"
    }
    assert {named[rank, None] for rank in (0, 9)} == {"rank 0", "rank 9"}
    for rank in (0, 9):
        mine = [one for one in events if one["ph"] == "X" and one["pid"] == rank]
        rows: dict[str, list[Any]] = {}
        for one in mine:
            rows.setdefault(named[rank, one["tid"]], []).append(one)
        assert [one["name"] for one in rows["group of steps"]] == ["step"] * 3
        # Of the world and of a group of half of it.
        assert {one["args"]["ranks"] for one in rows["group 0"]} == {"512"}
        (half,) = rows["group 1"]
        assert (half["name"], half["args"]["ranks"]) == ("all_reduce", "256")
        assert half["args"]["bytes"] == "4"
        assert "all_reduce" in {one["name"] for one in rows["group of waits"]}
        reductions = [one for one in rows["group 0"] if one["name"] == "all_reduce"]
        assert len(reductions) == 5
        assert len({one["args"]["call"] for one in rows["group 0"]}) == len(rows["group 0"])
        for before, after in zip(rows["group 0"], rows["group 0"][1:], strict=False):
            assert before["ts"] + before["dur"] <= after["ts"]
        assert all(began < one["ts"] < time.time() * 1e6 for one in mine)
        modelled_us = json.loads((tmp_path / f"rank-{rank}.json").read_text())["operations"]
        by_name = {one["name"]: sum(one["seconds"].values()) * 1e6 for one in modelled_us}
        held_us = sum(one["dur"] for one in [*reductions, half])
        assert held_us >= by_name["all_reduce"] * 0.99
