"""The benchmark runs from end to end with tiny sizes; figures are not judged here."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
REPLAY = BENCHMARKS / "replay.py"
GEAR = {"gear", "gear_episode_pages"}
COPIES = {"memcpy_1_thread", "memcpy_all_threads"}
BY_HAND = {"numpy", "torch", "torch_1_thread"}
TO_DISK = {*GEAR, "numpy", "copy", "copy_fsync"}
WORKLOADS = {
    "uniform_256": GEAR | COPIES | BY_HAND,
    "weighted_256": GEAR | COPIES,
    "prioritised_256": GEAR | COPIES,
    "slices_20": GEAR | COPIES | BY_HAND,
    "slices_50": GEAR | COPIES | BY_HAND,
    "slices_100": GEAR | COPIES | BY_HAND,
    "frames_256": GEAR | COPIES | BY_HAND,
    "insert_single": GEAR | COPIES | {"numpy"},
    "vector_step_16": GEAR | COPIES | {"numpy"},
    "vector_step_256": GEAR | COPIES | {"numpy"},
    "extend_256": GEAR | COPIES | {"numpy"},
    "save": TO_DISK,
    "load": TO_DISK,
}
SPANS = {"wall_us", "cpu_us", "items_per_s", "gb_per_s", "gear_ratio", "cpu_ratio"}
FIGURES = SPANS | {"p99_us", "bytes_per_call", "items_per_call", "variant", "wrong", "verdict"}


def slow(test: Callable[..., None]) -> Callable[..., None]:
    """Whichever test comes first waits for `report`: eighteen processes that import torch."""
    return pytest.mark.subject("benchmarks")(pytest.mark.slow(test))


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts of benchmarks/ import each other by bare names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "contestants"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REPLAY), *arguments], capture_output=True, text=True, check=False
    )


# ---- from end to end ----


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    done = run("--quick", "--repeats", "2", "--json", str(path))
    assert done.returncode == 0, done.stderr
    assert "cpprb is missing: left out by --peers none" in done.stdout
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


@slow
def test_report_has_every_key(report: dict[str, Any]) -> None:
    assert set(report) == {
        "machine",
        "repeats",
        "rounds",
        "versions",
        "workloads",
        "units",
        "results",
        "not_offered",
        "not_measured",
        "memory",
        "targets",
        "failures",
        "peers_missing",
    }
    assert {"cpu", "cores", "date", "command", "load_average_1min"} <= set(report["machine"])
    assert {"gear", "numpy", "torch", "python"} <= set(report["versions"]["gear"])
    assert report["repeats"] == 2
    assert not report["failures"]
    peers = {"cpprb", "tianshou", "stable-baselines3", "torchrl", "flashbax", "reverb"}
    assert set(report["peers_missing"]) == peers


@slow
def test_every_contestant_has_every_figure(report: dict[str, Any]) -> None:
    assert {name: set(found) for name, found in report["results"].items()} == WORKLOADS
    for contestants in report["results"].values():
        for figures in contestants.values():
            assert set(figures) >= FIGURES
            assert figures["runs"] == 2
            for name in SPANS:
                assert 0 < figures[name]["min"] <= figures[name]["median"] <= figures[name]["max"]


@slow
def test_what_is_delivered_is_what_was_stored(report: dict[str, Any]) -> None:
    for contestants in report["results"].values():
        assert not [name for name, figures in contestants.items() if figures["wrong"]]


@slow
def test_rows_say_pages_and_threads(report: dict[str, Any]) -> None:
    rows = report["results"]["vector_step_256"]
    assert rows["gear"]["variant"] == "pages of 1 step"
    assert rows["gear_episode_pages"]["variant"] == "pages of an episode"
    assert rows["memcpy_1_thread"]["variant"] == "1 thread"


@slow
def test_what_nobody_offers_is_named(report: dict[str, Any]) -> None:
    """Torch by hand has no priorities; limits are no contestants."""
    assert report["not_offered"]["weighted_256"] == ["numpy", "torch", "torch_1_thread"]
    assert report["not_offered"]["uniform_256"] == []


@slow
def test_targets_are_judged(report: dict[str, Any]) -> None:
    rows = {(row["workload"], row["of"], row["against"]): row for row in report["targets"]}
    assert len(report["targets"]) == len(rows) == 17
    assert rows["frames_256", "wall time", "torch"]["measured"]["median"] > 0
    assert rows["uniform_256", "CPU time", "numpy"]["measured"]["median"] > 0
    assert any(workload == "frames_256" and against in COPIES for workload, _, against in rows)
    single = [row for row in report["targets"] if row["workload"] == "insert_single"]
    assert [row["verdict"] for row in single] == ["not measured"]


def test_unknown_names_are_refused() -> None:
    done = run("--quick", "--only", "uniform")
    assert done.returncode == 1
    assert "no workload uniform; there are uniform_256" in done.stderr
    done = run("--quick", "--repeats", "0")
    assert done.returncode == 2
    assert "0: at least 1" in done.stderr


# ---- several runs as one ----


def one_run(**wall_us: float) -> dict[str, Any]:
    """A run of one workload, in which each contestant's rounds all took the same time."""
    figures = {
        name: {
            "wall_us": us,
            "cpu_us": 2 * us,
            "wall_us_rounds": [us, us],
            "p99_us": us,
            "items_per_call": 256.0,
            "bytes_per_call": 1000.0,
            "delivered_bytes": 1000,
            "calls": 10,
            "variant": "",
            "wrong": [],
        }
        for name, us in wall_us.items()
    }
    results, reasons = {"work": figures}, {"work": {}}
    return {
        "versions": {},
        "memory": {},
        "failures": {},
        "results": results,
        "not_measured": reasons,
    }


def test_runs_are_reported_as_median_and_range() -> None:
    from repeats import merge

    runs = [one_run(gear=10, cpprb=30), one_run(gear=12, cpprb=24), one_run(gear=11, cpprb=44)]
    work = merge(runs)["results"]["work"]
    assert work["gear"]["wall_us"] == {"median": 11, "min": 10, "max": 12}
    assert work["gear"]["cpu_us"] == {"median": 22, "min": 20, "max": 24}
    assert work["cpprb"]["gear_ratio"] == {"median": 3, "min": 2, "max": 4}
    assert work["cpprb"]["cpu_ratio"] == {"median": 3, "min": 2, "max": 4}
    assert work["cpprb"]["verdict"] == "faster"
    assert work["gear"]["verdict"] == ""


@pytest.mark.parametrize(
    ("walls", "verdict", "shown"),
    [
        ([(10, 13), (12, 15), (14, 17)], "noise", "noise"),
        ([(20, 10), (24, 12), (22, 11)], "slower", "0.5 x as fast"),
        ([(10, 20), (10, 20)], "too few runs", "2 x? too few runs"),
    ],
)
def test_ranges_that_overlap_are_noise(
    walls: list[tuple[float, float]], verdict: str, shown: str
) -> None:
    from repeats import merge
    from report import compared

    work = merge([one_run(gear=ours, cpprb=theirs) for ours, theirs in walls])["results"]["work"]
    assert work["cpprb"]["verdict"] == verdict
    assert compared(work["cpprb"]) == shown


def test_a_contestant_of_some_runs_counts_in_those() -> None:
    from repeats import merge

    runs = [one_run(gear=10, cpprb=30), one_run(gear=12), one_run(cpprb=44)]
    work = merge(runs)["results"]["work"]
    assert work["cpprb"]["runs"] == 2
    assert work["cpprb"]["gear_ratio"] == {"median": 3, "min": 3, "max": 3}


def test_what_could_not_be_measured_is_told_with_its_reason() -> None:
    """Unless a run has measured it."""
    from repeats import merge

    runs = [one_run(gear=10), one_run(gear=12, cpprb=24)]
    runs[0]["not_measured"]["work"] = {"cpprb": "no time", "torchrl": "its tree does not load"}
    assert merge(runs)["not_measured"]["work"] == {"torchrl": "its tree does not load"}


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.5, 1.7, "pass"), (1.2, 1.4, "fail"), (1.4, 1.6, "noise")]
)
def test_a_target_is_judged_by_its_range(low: float, high: float, verdict: str) -> None:
    import targets

    span = {"median": (low + high) / 2, "min": low, "max": high}
    less_cpu = {"median": 0.7, "min": 0.6, "max": 0.8}  # NumPy takes less CPU time than GEAR
    contestants = {
        "gear": {"items_per_s": {"median": 2.0}, "gear_ratio": span},
        "numpy": {"items_per_s": {"median": 1.0}, "gear_ratio": span, "cpu_ratio": less_cpu},
    }
    rows = targets.judge({"uniform_256": contestants}, {})
    assert [row["verdict"] for row in rows[:3]] == [verdict, "fail", "not measured"]
    assert [row["of"] for row in rows[:2]] == ["wall time", "CPU time"]
    assert rows[0]["against"] == "numpy"


# ---- contestants ----


def test_a_contestant_that_cannot_start_is_named_with_its_reason(tmp_path: Path) -> None:
    import arena

    entry = arena.Entry("absent", [sys.executable, "-c", "raise SystemExit('no module absent')"])
    found = arena.play(
        "transitions", [], [entry], arena.QUICK, tmp_path, lambda text: None, random.Random(1)
    )
    assert found["failures"] == {"absent": "absent ended during 'hello': no module absent"}


PEER = """
from protocol import Contestant, NotMeasured, serve


class Peer(Contestant):
    name = "peer"

    def weighted(self, work):
        raise NotMeasured("its tree does not load")


serve(Peer())
"""


@slow
def test_a_call_that_cannot_be_made_is_not_one_that_is_not_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does not end the contestant."""
    import arena
    import report
    import workloads

    (tmp_path / "peer.py").write_text(PEER)
    entry = arena.Entry("peer", [sys.executable, str(tmp_path / "peer.py")])
    work = [w for w in workloads.everything(quick=True) if w.kind in ("weighted", "uniform")]
    found = arena.play(
        *("transitions", work, [entry], arena.QUICK, tmp_path),
        *(lambda text: None, random.Random(1)),
    )
    arena.close([entry])
    assert found["failures"] == {}
    assert found["not_measured"] == {
        "uniform_256": {},
        "weighted_256": {"peer": "its tree does not load"},
    }
    told = {"units": {w.name: "" for w in work}, "memory": {}, "targets": [], "peers_missing": {}}
    report.show({**found, **told, "repeats": 1, "not_offered": {"uniform_256": ["peer"]}})
    said = capsys.readouterr().out
    assert "not offered by peer" in said
    assert "peer was not measured: its tree does not load" in said


@pytest.mark.parametrize("missing", [True, False])
def test_torchrl_without_its_compiled_tree_is_not_measured(
    missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins of its packages, which are not installed here."""
    import protocol
    import workloads

    class Anything:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return Anything

    samplers = types.ModuleType("torchrl.data.replay_buffers.samplers")
    samplers.SumSegmentTreeFp32 = None if missing else object()
    samplers.PrioritizedSampler = samplers.Sampler = Anything
    data = types.ModuleType("torchrl.data")
    data.LazyTensorStorage = data.ReplayBuffer = Anything
    buffers = types.ModuleType("torchrl.data.replay_buffers")
    buffers.samplers = samplers
    tensordict = types.ModuleType("tensordict")
    tensordict.TensorDict = dict
    for module in (types.ModuleType("torchrl"), data, buffers, samplers, tensordict):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(BENCHMARKS / "peers"))
    monkeypatch.delitem(sys.modules, "torchrl_peer", raising=False)
    import torchrl_peer

    peer = torchrl_peer.TorchRL()
    monkeypatch.setattr(peer, "_make", lambda *_: Anything())
    peer.data = types.SimpleNamespace(num_steps=4)
    work = next(w for w in workloads.everything(quick=True) if w.kind == "prioritised")
    if missing:
        for method in (peer.weighted, peer.prioritised):
            with pytest.raises(protocol.NotMeasured, match="its compiled sum tree was built for"):
                method(work)
    else:
        assert callable(peer.weighted(work))
        assert callable(peer.prioritised(work))
    monkeypatch.delitem(sys.modules, "torchrl_peer")


@pytest.mark.parametrize("episode_pages", [False, True])
def test_gear_inserts_what_the_workload_asks(episode_pages: bool) -> None:
    import experience
    import workloads
    from gear_contestant import Gear

    contestant = Gear(episode_pages=episode_pages)
    contestant.data = experience.make("transitions", quick=True)
    contestant.fill()
    work = {workload.name: workload for workload in workloads.everything(quick=True)}

    step = work["vector_step_256"]
    call = contestant.vector_step(step)
    length = contestant.data.episode_steps
    for _ in range(length):
        call()
    assert len(contestant.buffer) == length * step.items
    states = [episode.state for episode in contestant.buffer.episodes()]
    assert states.count("terminated") == states.count("open") == step.items

    call = contestant.extend(work["extend_256"])
    call()
    last = contestant.buffer.episodes()[-1]
    assert (last.state, last.end - last.begin) == ("open", work["extend_256"].items)


def test_one_copy_is_of_one_thread_and_one_of_all() -> None:
    import os

    import experience
    import torch
    import workloads
    from copy_contestant import Memcpy

    threads_before = torch.get_num_threads()
    try:
        for threads, expected in ((1, 1), (0, len(os.sched_getaffinity(0)))):
            contestant = Memcpy(threads=threads)
            assert contestant.setting.startswith(f"{expected} thread")
            assert torch.get_num_threads() == expected
            contestant.data = experience.make("transitions", quick=True)
            contestant.fill()
            contestant.uniform(workloads.everything(quick=True)[0])()
    finally:
        torch.set_num_threads(threads_before)
