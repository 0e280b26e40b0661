"""Groups of real processes: under launchers, in meshes, and what happens when a rank dies."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gear
from distributed.forked import RANKS, Run, clean_environment, plain, results_in, run

if TYPE_CHECKING:
    from distribution.slurm_cluster import Cluster

pytestmark = pytest.mark.subject("library")

pytest_plugins = ["distribution.slurm_cluster"]
LIMIT_S = 240

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
without_fabric = pytest.mark.skipif(
    not gear._core.build_info()["fabric"], reason="GEAR was built without libfabric"
)
needs_mpi4py = pytest.mark.skipif(find_spec("mpi4py") is None, reason="needs mpi4py")


__all__ = ["run"]  # a fixture


def launch(
    command: Sequence[str | Path], size: int, *, fails: bool = False
) -> list[dict[str, Any]]:
    """The results of a real launcher's ranks, by rank; `size` of them."""
    environment = {
        **clean_environment(),
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    results = results_in(done.stdout)
    assert len(results) == size, done.stdout
    return sorted(results, key=lambda result: result["place"])


def mpirun(size: int, scenario: str) -> list[str | Path]:
    return ["mpirun", "--oversubscribe", "-np", str(size), sys.executable, RANKS, scenario]


def check_talk(results: list[dict[str, Any]], launcher: str) -> None:
    size = len(results)
    for rank, result in enumerate(results):
        assert result["launcher"] == launcher
        assert result["place"] == [rank, size]
        assert result["small"] == [{"rank": r, "of": [size, None, 0.5]} for r in range(size)]
        assert result["large"] == [3000 * r for r in range(size)]
        assert result["received"] == [10 * r + rank for r in range(size)]
        assert result["missing"] == []
        assert result["members"]
        assert result["torch is untouched"]


# ---- launchers ----


@needs_torch
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_plain_environment(run: Run, size: int) -> None:
    results = run("talk", plain(size))
    check_talk(results, "environment")
    for rank, result in enumerate(results):
        assert result["places"] == [[0] * size, 0, 1, rank, size]


@needs_torch
def test_torchrun() -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [torchrun, "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]
    check_talk(launch([*command, RANKS, "talk"], 2), "torchrun")


@pytest.mark.mpi
@needs_mpi4py
@pytest.mark.parametrize("size", [1, 3])
def test_mpirun(size: int) -> None:
    results = launch(mpirun(size, "talk"), size)
    check_talk(results, "mpirun")
    assert all("torch" not in result["modules"] for result in results)


@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, 3])
def test_mpirun_without_mpi4py(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """By the MPI that GEAR was built with."""
    monkeypatch.setenv("WITHOUT", "mpi4py,torch")
    results = launch(mpirun(size, "without"), size)
    check_talk(results, "mpirun")
    assert all(result["modules"] == [] for result in results)


@needs_torch
@pytest.mark.parametrize(
    ("nodes", "carried"),
    [("aaa", "shared_memory"), pytest.param("aab", "libfabric", marks=without_fabric)],
)
def test_ranks_meet_without_torch(run: Run, nodes: str, carried: str) -> None:
    places = plain(3, WITHOUT="torch,mpi4py,horovod")
    for place, node in zip(places, nodes, strict=True):
        place["GEAR_NODE"] = node
    results = run("without", places)
    check_talk(results, "environment")
    assert [result["carried"] for result in results] == [carried] * 3


@needs_torch
def test_ranks_that_nothing_connects_are_told_what_to_install(run: Run) -> None:
    places = plain(2, WITHOUT="torch,mpi4py", GEAR_FABRIC_PROVIDER="none")
    for place, node in zip(places, "ab", strict=True):
        place["GEAR_NODE"] = node
    for result in run("unconnected", places):
        assert result["kind"] == "InvalidArgument", result
        assert (
            "[group] nothing that is installed connects the ranks: libfabric does not"
            in result["error"]
        )


@pytest.mark.mpi
@needs_mpi4py
def test_a_hanging_rank_is_named_under_mpirun() -> None:
    """The others do not wait for it in MPI_Finalize, so that mpirun ends the run."""
    for result in launch(mpirun(3, "hanging"), 2, fails=True):
        assert "rank 1 (pid " in result["error"]
        assert "did not take part within 0.5 s" in result["error"]
        assert result["missing"] == [1]


@needs_torch
@needs_mpi4py
@pytest.mark.mpi
def test_an_mpi4py_of_another_mpi(run: Run) -> None:
    """MPI that does not know the launcher takes each process for the only one."""
    mpi = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    places = [
        {**mpi, **master, "MV2_COMM_WORLD_RANK": rank, "MV2_COMM_WORLD_SIZE": size}
        for place in plain(2)
        for rank, size, master in [(place.pop("RANK"), place.pop("WORLD_SIZE"), place)]
    ]
    results = run("talk", places)
    check_talk(results, "mpirun")
    assert results[0]["modules"] == ["torch", "mpi4py"]


@needs_torch
def test_srun(run: Run) -> None:
    """The variables of a step of 3 tasks; the meeting point is made of them."""
    step = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}
    host = socket.gethostname()
    places = [
        {**step, "SLURM_PROCID": str(rank), "SLURM_STEP_NODELIST": f"{host},other[1-2]"}
        for rank in range(3)
    ]
    check_talk(run("talk", places), "srun")


@needs_torch
@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
def test_srun_on_two_nodes(cluster: Cluster) -> None:
    """A real step: its ranks meet by what Slurm says of it alone, and memory of the other node,
    which has a /dev/shm of its own, is not mapped."""
    step = ["srun", "--nodes=2", "--ntasks=3", "--ntasks-per-node=2", "--quiet"]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = cluster.run(*step, sys.executable, RANKS, "talk", env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    results = sorted(results_in(done.stdout), key=lambda result: result["place"])
    check_talk(results, "srun")
    assert [result["places"][:3] for result in results] == [
        [[0, 0, 1], 0, 2],
        [[0, 0, 1], 0, 2],
        [[0, 0, 1], 1, 2],
    ]


@needs_torch
def test_horovodrun(run: Run, tmp_path: Path) -> None:
    """Over a stand-in for Horovod, which is asked who the ranks are."""
    shared = {"HOROVOD_SIZE": "3", "HOROVOD_STAND_IN": str(tmp_path)}
    places = [{**shared, "HOROVOD_RANK": str(rank)} for rank in range(3)]
    results = run("by_horovod", places)
    check_talk(results, "horovodrun")
    who = r"rank 2 \(pid \d+ on \S+\)"
    assert re.match(rf"\[transport\] {who} did not take part within 0\.5 s", results[0]["error"])


@needs_torch
def test_nodes_by_name(run: Run) -> None:
    places = plain(4)
    for place, name in zip(places, "abca", strict=True):
        place["GEAR_NODE"] = name
    results = run("talk", places)
    check_talk(results, "environment")
    nodes = [0, 1, 2, 0]
    for result, place in zip(results, [(0, 2), (0, 1), (0, 1), (1, 2)], strict=True):
        rank = result["place"][0]
        assert result["places"] == [nodes, nodes[rank], 3, *place]


@needs_torch
def test_initialised_torch_is_used_and_left_alone(run: Run) -> None:
    results = run("existing", plain(3))
    for rank, result in enumerate(results):
        assert result["ranks"] == [0, 1, 2]
        assert result["sum"] == 3
        assert result["pair"] == (None if rank == 1 else [0, 2])
        assert result["launcher"] == "environment"


def test_half_set_variables(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(gear.InvalidArgument, match="WORLD_SIZE is not: set both"):
        gear.Group.from_env()
    monkeypatch.setenv("WORLD_SIZE", "1")
    with caplog.at_level(logging.DEBUG, "gear"):
        assert gear.Group.from_env().launcher == "environment"
    told = [record.message for record in caplog.records]
    assert told == ["[group] environment (RANK, WORLD_SIZE): rank 0 of 1, via none"]
    monkeypatch.setenv("GEAR_TIMEOUT_S", "soon")
    with pytest.raises(gear.InvalidArgument, match="GEAR_TIMEOUT_S=soon: seconds"):
        gear.Group.from_env()
    monkeypatch.setenv("GEAR_TIMEOUT_S", "2.5")
    assert gear.Group.from_env().timeout_s == 2.5
    assert gear.Group.from_env(timeout_s=7).timeout_s == 7
    with pytest.raises(gear.InvalidArgument, match="transport 'tcp': 'auto', 'shared_memory', "):
        gear.Group.from_env(transport="tcp")


# ---- meshes ----


@needs_torch
def test_mesh_and_shared_loader(run: Run) -> None:
    results = run("mesh", plain(4))
    for me, result in enumerate(results):
        dp, pp = divmod(me, 2)
        assert result["dp"] == [pp, 2 + pp]
        assert result["replicas"] == [2 * dp, 2 * dp + 1]
        assert result["grid"] == [result["dp"], result["replicas"]]
        assert "mesh axis 'tp': this mesh has 'dp', 'pp'" in result["refused"]
        batches = result["batches"]
        assert len(batches) == 5
        assert [batch["ids"] for batch in batches] == [
            batch["ids"] for batch in results[2 * dp]["batches"]
        ]
        name = ["obs", "reward"][pp]
        assert {tuple(batch["outputs"]) for batch in batches} == {(name,)}
        assert {tuple(batch["dtype"]) for batch in batches} == {("torch.float32",)}
    seen = []
    for dp in range(2):
        for first, last in zip(
            results[2 * dp]["batches"], results[2 * dp + 1]["batches"], strict=True
        ):
            rewards, windows, masks = last["values"][0], first["values"][0], first["masks"][0]
            seen.append(rewards)
            for reward, (now, then), mask in zip(rewards, windows, masks, strict=True):
                is_last = reward % 100 == 19
                assert now == [reward] * 3
                assert then == [0.0 if is_last else reward + 1] * 3
                assert mask == [True, not is_last]
    # One epoch over the experience of both pipelines, whose batches are of both.
    assert sorted(reward for rewards in seen for reward in rewards) == [
        100 * dp + step for dp in range(2) for step in range(20)
    ]
    assert any(min(rewards) < 100 <= max(rewards) for rewards in seen)


# ---- a rank that is late, and one that dies ----


@needs_torch
def test_a_late_rank_is_named(run: Run) -> None:
    results = run("late", plain(3))
    for rank in (0, 2):
        assert re.match(
            r"\[transport\] rank 1 \(pid \d+ on \S+\) did not take part within 0\.5 s: ",
            results[rank]["error"],
        )
        assert results[rank]["again"]["error"] == results[rank]["error"]
    assert "[transport] rank" in results[1]["error"]


@needs_torch
@pytest.mark.parametrize(("killed", "nodes"), [(1, "aaaa"), (1, "abbc"), (0, "aaaa")])
def test_a_killed_rank_is_named(run: Run, killed: int, nodes: str) -> None:
    """At once, also by a rank that comes later and sees the connections of all others close; where
    rank 0 is killed, with the store that its process served."""
    places = plain(4, KILLED=str(killed))
    for place, node in zip(places, nodes, strict=True):
        place["GEAR_NODE"] = node
    results = run("killed", places, killed=[killed])
    for rank in {0, 1, 2, 3} - {killed}:
        who = rf"\[transport\] rank {killed} \(pid \d+ on \S+\) has ended: "
        assert re.match(who, results[rank]["error"])
        assert results[rank]["missing"] == [killed]
        assert results[rank]["lost"] == results[rank]["error"]


@needs_torch
def test_a_rank_that_does_not_start_is_named(run: Run) -> None:
    results = run("start", plain(3, GEAR_TIMEOUT_S="1.5"))
    for rank in (0, 2):
        assert "rank 1 did not start within 1.5 s" in results[rank]["error"]


# ---- transports ----


def check_carry(results: list[dict[str, Any]], name: str) -> None:
    size = len(results)
    for rank, result in enumerate(results):
        assert result["name"] == name
        assert result["all"] == ["".join(str(r + twin) for r in range(size)) for twin in (0, 1)]
        assert result["parts"] == [r * size + rank for r in range(size)]


@needs_torch
@pytest.mark.parametrize(
    ("asked", "nodes", "given"),
    [
        ("auto", "aaa", "shared_memory"),
        pytest.param("auto", "aab", "libfabric", marks=without_fabric),
        pytest.param("libfabric", "aaa", "libfabric", marks=without_fabric),
        ("group", "aaa", "group"),
        ("shared_memory", "abc", "shared_memory"),  # names apart, and one host all the same
    ],
)
def test_transport(run: Run, asked: str, nodes: str, given: str) -> None:
    places = plain(3, CARRY_BY=asked)
    for place, node in zip(places, nodes, strict=True):
        place["GEAR_NODE"] = node
    check_carry(run("carry", places), given)


def chosen(run: Run, nodes: str, killed: Sequence[int] = (), **more: str) -> list[dict[str, Any]]:
    places = plain(len(nodes), **more)
    for place, node in zip(places, nodes, strict=True):
        place["GEAR_NODE"] = node
    return run("chosen", places, killed=killed)


@needs_torch
def test_auto_takes_what_was_fastest_in_a_first_exchange_between_nodes(run: Run) -> None:
    own = "libfabric" if gear._core.build_info()["fabric"] else "group"
    results = chosen(run, "aab")
    (why,) = {result["why"] for result in results}
    said = re.fullmatch(
        rf"(mpi|{own}) ([0-9.e-]+) GB/s, (mpi|{own}) ([0-9.e-]+): rows between 2 nodes, in a first "
        rf"exchange(?:; mpi, within 10 % of {own}, is preferred)?; rows one-sided: .*",
        why,
    )
    assert said, why
    first, rate, second, other = said.groups()
    assert {first, second} == {"mpi", own}
    (taken,) = {name for result in results for name in result["names"]}
    assert taken == (first if float(other) < 0.85 * float(rate) else taken)
    made = [10.0] + [40.0] * 2 * (taken == "mpi")  # a quarter of the time-out; then two transports
    assert [result["made"] for result in results] == [made] * 3


@needs_torch
def test_what_fails_amid_its_first_exchange_is_left_out_and_named(run: Run) -> None:
    for result in chosen(run, "ab", WHO="1", WHAT="fails"):
        assert set(result["names"]) == {
            "libfabric" if gear._core.build_info()["fabric"] else "group"
        }
        assert "mpi left out: rank 1 lost its card" in result["why"]


@needs_torch
@pytest.mark.skipif(
    not gear._core.build_info()["fabric"], reason="GEAR was built without the transport fabric"
)
def test_stores_are_read_one_sided_whatever_is_faster(run: Run) -> None:
    for result in chosen(run, "ab", STORE="1"):
        assert result["names"] == ["fabric", "fabric"], result["why"]
        kinds = re.findall(r"(?:^|, )(\w+) [0-9.e-]+", result["why"].partition(":")[0])
        assert sorted(kinds) == ["fabric", "libfabric", "mpi"]
        assert "; stores are read one-sided; messages go by" in result["why"]


@needs_torch
def test_a_rank_that_is_killed_in_a_first_exchange_is_named(run: Run) -> None:
    results = chosen(run, "abb", killed=[1], WHO="1", WHAT="killed")
    for rank in (0, 2):
        who = r"\[transport\] rank 1 \(pid \d+ on \S+\) has ended: "
        assert re.match(who, results[rank]["error"]), results[rank]


@needs_torch
def test_mpi_needs_ranks_of_mpi(run: Run) -> None:
    for result in run("refused", plain(2, REFUSED="mpi")):
        assert result["error"].startswith("[transport] transport 'mpi' needs GEAR built with MPI")
        assert (
            "started by environment and connected by shared_memory; use 'auto'" in result["error"]
        )


@needs_torch
@pytest.mark.skipif(any(Path("/sys/class/infiniband").glob("*")), reason="there is an RDMA device")
def test_verbs_needs_an_rdma_port_on_every_rank(run: Run) -> None:
    for result in run("refused", plain(2, REFUSED="verbs")):
        reason = r"(no RDMA device was found|libibverbs cannot be loaded|this build of GEAR has no)"
        said = (
            rf"\[transport\] transport 'verbs' needs an RDMA port on every rank: "
            rf"rank 0: {reason}.*; rank 1: {reason}.*"
        )
        assert re.fullmatch(said, result["error"]), result["error"]


@needs_torch
@pytest.mark.skipif(
    not gear._core.build_info()["fabric"], reason="GEAR was built without the transport fabric"
)
def test_fabric_needs_a_provider_on_every_rank(run: Run) -> None:
    places = plain(2, REFUSED="fabric")
    places[1]["GEAR_FABRIC_PROVIDER"] = "cxj"
    for result in run("refused", places):
        assert result["error"] == (
            "[transport] transport 'fabric' needs libfabric with a provider on every rank: rank 1: "
            "no provider of libfabric fits, GEAR_FABRIC_PROVIDER='cxj' (No data available): "
            "fi_info shows those that there are"
        )


@needs_torch
@pytest.mark.slow
@pytest.mark.skipif(
    not gear._core.build_info()["fabric"], reason="GEAR was built without the transport fabric"
)
def test_ranks_that_are_told_to_pack_otherwise_are_refused(run: Run) -> None:
    places = plain(2, REFUSED="fabric", GEAR_FABRIC_PROVIDER="tcp")
    places[1]["GEAR_PACK_BELOW"] = "20"
    for result in run("refused", places):
        assert result["error"] == (
            "[transport] GEAR_PACK_BELOW on rank 1 is 20, on rank 0 not set: give every rank the "
            "same, or none"
        )


@needs_torch
def test_bench_links_measures_what_there_is_and_says_why_not_the_rest(run: Run) -> None:
    result, other = run("links", plain(2))
    rates = {(kind, row_bytes): rate for kind, row_bytes, rate in result["rates"]}
    kinds = {kind for kind, _ in rates}
    assert kinds >= {"mapped", "shared_memory", "group"}
    assert result["connected"]["group"] == "gloo"
    assert ("libfabric" in kinds) is bool(gear._core.build_info()["fabric"])
    assert result["connected"].get("libfabric", "libfabric") == "libfabric"
    assert set(rates) == {(kind, row_bytes) for kind in kinds for row_bytes in (64, 4096)}
    assert all(rate > 0 for rate in rates.values())
    assert set(result["bounded"]) >= kinds - {"verbs"}
    assert "needs GEAR built with MPI and all ranks that mpirun started" in result["told"]["mpi"]
    assert result["told"].get("verbs", "").startswith("[transport]") is ("verbs" not in kinds)
    assert ("fabric" in kinds) is bool(gear._core.build_info()["fabric"])
    assert ("fabric packed" in kinds) is ("fabric" in kinds)
    if "fabric" in kinds:
        assert re.search(r"; owners pack runs below [\d,]+ bytes$", result["told"]["fabric"])
    assert [rate for _, _, rate in other["rates"]] == [0] * len(rates)


@pytest.mark.mpi
@needs_mpi4py
@pytest.mark.parametrize(
    ("asked", "nodes", "given"),
    [("group", "aaa", "group"), ("auto", "abb", "mpi or group"), ("mpi", "aaa", "mpi")],
)
def test_transport_under_mpirun(
    asked: str, nodes: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "mpi" in given and not gear._core.build_info()["mpi"]:
        pytest.skip("this build of GEAR has no MPI")
    monkeypatch.setenv("CARRY_BY", asked)
    monkeypatch.setenv("CARRY_NODES", nodes)
    results = launch(mpirun(3, "carry"), 3)
    assert results[0]["name"] in given.split(" or ")  # auto: whichever was faster
    check_carry(results, results[0]["name"])
