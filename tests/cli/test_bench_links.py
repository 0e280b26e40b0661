"""`gear bench links`: rates between two ranks, and their bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from distributed.forked import clean_environment

import gear
from gear.cli.bench import bounds, links
from gear.cli.bench.links import Measured, Report, print_table
from gear.cli.bench.rates import Work, rows_per_s

LITTLE = Work(pool_bytes=1 << 16, batch_bytes=1 << 12, seconds=0.002)


@pytest.mark.parametrize("row_bytes", [1, 64, 1 << 17])
def test_only_rank_0_receives_rows_of_the_other(row_bytes: int) -> None:
    rates = [-1.0, -1.0]

    def play(group: gear.Group) -> None:
        rates[group.rank] = rows_per_s(group, "host", row_bytes, LITTLE)

    threads = [
        threading.Thread(target=play, args=(group,))
        for group in gear.Group.loopback(2, ranks_per_node=1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rates[0] > 0
    assert rates[1] == 0


def test_bounds_are_those_that_the_kernel_tells(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    assert list(bounds.ports(tmp_path)) == [bounds.Bound("mlx5_0 port 1", 50e9)]
    (port / "rate").write_text("\n")
    assert list(bounds.ports(tmp_path)) == []
    for name, speed, state in [("eth0", "25000", "up"), ("eth1", "1000", "down"), ("lo", "", "")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(speed)
        (tmp_path / name / "operstate").write_text(state)
    assert list(bounds.interfaces(tmp_path)) == [bounds.Bound("eth0", 3.125e9)]
    assert bounds.copy(1 << 20).bytes_per_s > 0


def test_the_table_shows_rates_their_part_of_the_bound_and_what_was_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    measured = [
        Measured("group", 4096, 1e5, bounds.Bound("eth0", 3.125e9)),
        Measured("verbs", 1024, 2e6, None),
    ]
    print_table(Report(["rank 0", "rank 1"], measured, {"mpi": "no MPI", "verbs": "mlx5_0 port 1"}))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "rows of rank 1, read by rank 0" in lines
    assert "group 4,096 100,000 0.410 13.1 % 3.12 eth0" in lines
    assert "verbs 1,024 2,000,000 2.048 ? ? not known" in lines
    assert "mpi: not measured: no MPI" in lines
    assert "verbs: mlx5_0 port 1" in lines


class Other:
    """The process that would be rank 1."""

    def __init__(self, _: list[str], env: dict[str, str]) -> None:
        self.env = env

    def terminate(self) -> None: ...
    def wait(self) -> None: ...


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_both_processes_are_ranks_by_hand_and_the_environment_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
) -> None:
    """One process of torchrun's would not serve the store, and the other not find it."""
    others: list[Other] = []
    seen: list[dict[str, str]] = []

    def start(words: list[str], env: dict[str, str]) -> Other:
        others.append(Other(words, env))
        return others[0]

    def measure(*_: Any) -> int:
        seen.append(dict(os.environ))
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(gear.Group, "from_env", gear.Group.single)
    monkeypatch.setattr(links.subprocess, "Popen", start)
    monkeypatch.setattr(links, "_measure_and_print", measure)
    torchrun = {"TORCHELASTIC_RUN_ID": "7", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in {**torchrun, "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    before = dict(os.environ)
    with nullcontext() if error is None else pytest.raises(error):
        links.run([64], LITTLE, False)
    assert dict(os.environ) == before
    for rank, process in enumerate([seen[0], others[0].env]):
        assert (process["RANK"], process["WORLD_SIZE"]) == (str(rank), "2")
        assert process["MASTER_ADDR"] == "127.0.0.1"
        assert not [name for name in process if name.startswith("TORCHELASTIC_")]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_without_a_launcher_it_starts_the_second_rank_itself() -> None:
    words = ["--row-bytes=64", "--row-bytes=100", "--seconds=0.01", "--pool-mib=1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "gear.cli.app", "bench", "links", *words],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert [row["row_bytes"] for row in measured if row["kind"] == "group"] == [64, 100]
    assert all(row["rows_per_s"] > 0 for row in measured)
    by_libfabric = any(row["kind"] == "libfabric" for row in measured)
    assert by_libfabric is bool(gear._core.build_info()["fabric"])
