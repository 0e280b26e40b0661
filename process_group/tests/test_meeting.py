"""How ranks meet, and what is refused before they do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

import gear_mpi
from gear_mpi.backend import Options, _cuda_way
from gear_mpi.compression import default_compression
from gear_mpi.library import load
from gear_mpi.sizes import bytes_of
from process_group.tests.launch import FOLDER, run_ranks

pytestmark = [pytest.mark.subject("process_group"), pytest.mark.xdist_group("process_group")]


@pytest.mark.slow
@pytest.mark.gear_mpi
def test_ranks_meet_in_every_way() -> None:
    ended = run_ranks(2, "meeting.py")
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert ended.stdout.count("met") == 2


@pytest.mark.slow
@pytest.mark.gear_mpi
@pytest.mark.parametrize("group", ["first", "second"])
def test_ranks_that_mpi_did_not_start_are_told_at_once_what_to_start_them_with(group: str) -> None:
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    program = str(FOLDER / "launched.py")
    ended = _without_launcher(torchrun, "--standalone", "--nproc-per-node=2", program, group)
    words = "the group has 2 ranks, and MPI sees 1 in this process: start the ranks with the"
    assert ended.stdout.count(words) == 2, ended.stdout + ended.stderr
    assert ended.returncode == 0


@pytest.mark.slow
@pytest.mark.gear_mpi
@pytest.mark.parametrize(
    ("group", "said"),
    [("first", "start ranks of gear_mpi with mpirun or srun"), ("mpi://", "works: 1.0 of 1\n")],
)
def test_one_process_without_a_launcher(group: str, said: str) -> None:
    ended = _without_launcher(sys.executable, str(FOLDER / "launched.py"), group)
    assert said in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == 0


@pytest.mark.slow
@pytest.mark.gear_mpi
def test_one_process_with_a_part_of_the_variables() -> None:
    """As programs set them that torchrun started before."""
    command = (sys.executable, str(FOLDER / "launched.py"), "first")
    ended = _without_launcher(*command, MASTER_ADDR="localhost", MASTER_PORT="29500")
    words = "RANK expected, but not set: this process has MASTER_ADDR, MASTER_PORT alone, of "
    assert words in ended.stdout, ended.stdout + ended.stderr
    for way in ("unset what is set", "gear_mpi.set_environment()", "init_method='mpi://'"):
        assert way in ended.stdout


def _without_launcher(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    launchers = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
    env = {name: text for name, text in os.environ.items() if not name.startswith(launchers)}
    env |= {"OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize(
    ("text", "number"), [("4M", 4 << 20), ("256k", 256 << 10), (" 100 ", 100), ("1G", 1 << 30)]
)
def test_numbers_of_bytes(text: str, number: int) -> None:
    assert bytes_of(text) == number


@pytest.mark.parametrize("text", ["", "M", "4 apples", "-1", "1.5M"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(gear_mpi.InvalidArgument, match="write one as 4M"):
        bytes_of(text)


@pytest.mark.parametrize("number", [0, 63, 1 << 31])
def test_segments_out_of_range(number: int) -> None:
    with pytest.raises(gear_mpi.InvalidArgument, match="64 bytes to less than 2G"):
        Options(segment_bytes=number).resolved()


def test_segment_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEAR_MPI_SEGMENT", "4M")
    assert Options().resolved() == 4 << 20


def test_compressions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_compression() == "none"
    monkeypatch.setenv("GEAR_MPI_COMPRESSION", "bf16")
    assert default_compression() == "bf16"
    monkeypatch.setenv("GEAR_MPI_COMPRESSION", "int4")
    with pytest.raises(gear_mpi.InvalidArgument, match="GEAR_MPI_COMPRESSION='int4': one of none"):
        default_compression()


def test_how_tensors_of_gpus_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEAR_MPI_CUDA", raising=False)
    for has_nccl in (True, False):
        monkeypatch.setattr(dist, "is_nccl_available", lambda has=has_nccl: has)
        assert _cuda_way() == ("" if has_nccl else "staged")
    for way in ("staged", "messages"):
        monkeypatch.setenv("GEAR_MPI_CUDA", way)
        assert _cuda_way() == way
    monkeypatch.setenv("GEAR_MPI_CUDA", "direct")
    with pytest.raises(
        gear_mpi.InvalidArgument, match="GEAR_MPI_CUDA='direct': 'staged', 'messages'"
    ):
        _cuda_way()


def test_no_library_for_this_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "1.0")
    load.cache_clear()
    with pytest.raises(gear_mpi.InvalidArgument, match=r"not been built for torch 1\.0"):
        load()
