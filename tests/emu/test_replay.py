"""`gear emu replay`: what it measures, its table and its file, and words that are wrong."""

from __future__ import annotations

import json
import math
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

import gear
import gear.emu as emu
from gear.cli.app import main
from gear.emu.replay import measure
from gear.emu.replay.estimate import HEAD, estimate, of_allgather, of_exchange
from gear.emu.replay.rounds import Batch

MIB = 1 << 20
ASKED = ["--per-node", "8", "--batch", "16", "--row-bytes", "64"]


def line(call_s: float, byte_s: float, basis: str) -> emu.Curve:
    sizes = [0, *(1 << power for power in range(4, 31))]
    return emu.Curve.of([(size, call_s + size * byte_s) for size in sizes], basis)


CURVES = {
    "all_gather": line(4e-3, 1e-9, "measured"),
    "all_to_all": line(3e-3, 1e-9, "published"),
    "send": line(1e-3, 1e-9, "given"),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "ROOM", 1 << 16)
    monkeypatch.setattr(measure, "MOST_S", 0.0)


def test_a_call_takes_the_median(monkeypatch) -> None:
    """By a clock that moves when it is called: what comes first, and once, does not count."""
    clock, took = [0.0], iter([9.0] * 3 + [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 60.0])

    def call() -> None:
        clock[0] += next(took)

    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(measure, "MOST_S", 0.0)
    assert measure.time_call(call) == 5.0
    assert next(took, None) is None


def test_rounds_take_what_the_curves_say() -> None:
    """An allgather among 8: three sends, less than an all_gather; an exchange: never more than an
    all_to_all."""
    shape = emu.Shape(2, 4)
    gathered = of_allgather(CURVES, shape, 100)
    assert math.isclose(gathered.seconds, 3e-3 + 700e-9)
    assert gathered.basis == "given"
    assert math.isclose(of_allgather(CURVES, emu.Shape(8, 4), 100).seconds, 4e-3 + 3200e-9)
    assert math.isclose(of_exchange(CURVES, shape, 2, 7000).seconds, 2e-3 + 7000e-9)
    assert math.isclose(of_exchange(CURVES, shape, 7, 7000).seconds, 3e-3 + 8000e-9)
    assert math.isclose(of_exchange(CURVES, emu.Shape(2), 1, 7000).seconds, 3e-3 + 14000e-9)
    one = estimate(Batch(shape, 1000, 160, "off"), 0.1, 0.2, CURVES)
    assert [held.round.name for held in one.rounds] == ["agreement", "counts", "parcels"]
    assert math.isclose(one.gather_s, 0.2 * 1.75)  # three of four rows are copied once more
    assert math.isclose(one.batch_s, 0.45 + one.exchange_s)
    assert one.basis == "published"
    assert one.messages == 3 + 3 + 7
    alone = estimate(Batch(emu.Shape(1), 1000, 160), 0.1, 0.2, CURVES)
    assert (alone.exchange_s, alone.messages, alone.basis) == (0, 0, "")


@pytest.mark.parametrize("sizes", [[0, 0, 0], [0, 5, 0], [700, 20, 9000], [MIB, MIB, 3]])
def test_a_transport_takes_what_the_formula_says(sizes) -> None:
    """Of exchanges in which rank 0 gives each other rank so much, and gets nothing."""
    groups = gear.Group.loopback(4, ranks_per_node=2, timeout_s=60)
    traffic = [emu.emulate(group, model=lambda name, *_: CURVES[name]) for group in groups]

    def exchange(group: gear.Group) -> None:
        transport = group.transport()
        gives = [b"", *map(bytes, sizes)] if group.rank == 0 else [b""] * 4
        gets = [sizes[group.rank - 1], 0, 0, 0] if group.rank else [0] * 4
        transport.exchange(gives, gets)
        transport.allgather(bytes(sizes[0]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(exchange, groups))
    told = traffic[0].tallies()
    given, shape = [size for size in sizes if size], emu.Shape(2, 2)
    assert told["exchange"]["messages"] == len(given)
    assert told["exchange"]["bytes"] == sum(given)
    wanted = of_exchange(CURVES, shape, len(given), sum(given)).seconds if given else 0.0
    assert math.isclose(sum(told["exchange"]["seconds"]), wanted, rel_tol=1e-6)
    gathered = of_allgather(CURVES, shape, sizes[0])
    assert math.isclose(sum(told["allgather"]["seconds"]), gathered.seconds, rel_tol=1e-9)
    if not sizes[0]:
        return
    wanted = of_exchange(CURVES, shape, 1, sizes[0]).seconds  # that one gets
    assert math.isclose(sum(traffic[1].tallies()["exchange"]["seconds"]), wanted, rel_tol=1e-6)


@pytest.mark.parametrize("locality", ["first", "off"])
def test_the_table_and_its_file(locality, quick, tmp_path, capsys) -> None:
    file = tmp_path / "replay.json"
    words = ["--ranks", "1,8", "--ranks", "64", *ASKED[2:], "--locality", locality]
    assert main(["emu", "replay", *words, "--json", str(file)]) == 0
    head, *lines, told = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0].strip() == HEAD[0]
    assert [line.split()[:2] for line in lines] == [["1", "1"], ["8", "1"], ["64", "8"]]
    assert lines[0].endswith("  measured")
    assert all(line.endswith("  measured, by formula, published") for line in lines[1:])
    assert f"16 items of 64 bytes a rank, to cpu, locality {locality}; links hgx-h100" in told
    said = json.loads(file.read_text())
    assert (said["batch"], said["row_bytes"], said["locality"]) == (16, 64, locality)
    for line, row in zip(lines, said["rows"], strict=True):
        _, _, draw, gather, messages, size, exchange, whole = line.split()[:8]
        told = [row["draw"]["seconds"], row["gather"]["seconds"], row["exchange"]["seconds"]]
        assert [float(draw), float(gather), float(exchange)] == [
            round(1e3 * one, 3) for one in told
        ]
        assert math.isclose(row["batch_s"], sum(told))
        assert float(whole) == round(1e3 * row["batch_s"], 3)
        assert (row["draw"]["basis"], row["exchange"]["bytes_basis"]) == ("measured", "by formula")
        of_all = sum(one["bytes"] for one in row["rounds"])
        assert math.isclose(row["exchange"]["bytes"], of_all / row["ranks"])
        assert (round(row["exchange"]["messages"]), round(row["exchange"]["bytes"])) == (
            int(messages),
            int(size),
        )
    assert [len(row["rounds"]) for row in said["rows"]] == [0, 3, 3]
    assert not list(Path("/dev/shm").glob(f"*gear-emu-replay-{os.getpid()}*"))


def test_what_was_measured_of_links_stands(quick, tmp_path, capsys) -> None:
    """Where it reaches; beyond it, and in other shapes, the formula is scaled to it."""
    shape = emu.Shape(8, 8)
    measured = [
        emu.Measured(name, shape, emu.Point(size, 1e-5 * (power + 1), basis="measured"))
        for name in CURVES
        for power, size in enumerate([256, 512])
    ]
    path = tmp_path / "links.json"
    emu.Links.load("hgx-h100").with_measured(measured).save(path)
    assert main(["emu", "replay", "-N", "64,128", *ASKED, "--links", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:3]
    assert all(line.endswith("  measured, by formula, extrapolated") for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (ASKED, "--ranks"),
        (["-N", "8", "--batch", "16"], "--row-bytes"),
        (["-N", "8,x", *ASKED], "--ranks 8,x: whole numbers are allowed, as 64,512"),
        (["-N", "0", *ASKED], "ranks of a job 0: 1 or more is allowed"),
        (["-N", "8,12", *ASKED], "12 ranks, 8 a node: a multiple of 8 is allowed"),
        (["-N", "8", "--batch", "0", "--row-bytes", "8"], "items of a batch 0: 1 or more"),
        (["-N", "8", "--batch", "8", "--row-bytes", "-8"], "bytes of a row -8: 1 or more"),
        (["-N", "8", *ASKED, "--locality", "near"], "locality 'near': 'first' and 'off' are"),
        (["-N", "8", *ASKED, "--device", "gpu"], "device 'gpu': 'cpu', 'cuda' and"),
        (["-N", "8", *ASKED, "--links", "ib"], "links 'ib' are neither ready ones"),
        (["-N", "8", *ASKED, "--set", "nic"], "--set nic: a name and a number"),
        (["-N", "8", *ASKED, "--model", "none"], "model 'none', and ranks that are emulated"),
        (["-N", "8", *ASKED, "--json", "no/such/file"], "--json no/such/file: its folder cannot"),
        (["-N", "8192", *ASKED], "draws over 8192 ranks: 4096 at most are allowed"),
        (
            ["-N", "4096", "--batch", str(MIB), "--row-bytes", "1"],
            "1048576 on each of 4096 ranks: all together draw 4294967295 items at most",
        ),
    ],
)
def test_wrong_words(words, message, quick, capsys) -> None:
    assert main(["emu", "replay", *words]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_gpus_of_one_node_are_refused(quick, monkeypatch, capsys) -> None:
    """They draw together, as nobody can here; of several nodes the hosts draw."""
    monkeypatch.setattr(measure._core, "parse_device", lambda device: 0)
    assert main(["emu", "replay", "-N", "64,8", *ASKED, "--device", "cuda"]) == 2
    assert "device 'cuda' and 8 ranks on one node, whose GPUs draw" in capsys.readouterr().err


@pytest.mark.slow
def test_the_documented_command(tmp_path, monkeypatch, capsys) -> None:
    command = documented(r"gear emu replay .*")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)[1:]) == 0
    ran(command)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:4]] == [
        "64",
        "512",
        "4096",
    ]
