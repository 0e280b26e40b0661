"""The transport mpi, between ranks that mpirun starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from distributed.launch import IMPLEMENTATIONS, launch
from gear import _core
from gear.distributed.channels.mpi import NOT_FINALISED

pytestmark = pytest.mark.subject("library")

RANKS = Path(__file__).with_name("mpi_ranks.py")
RUNTIME = Path(__file__).parents[2] / "csrc" / "mpi" / "runtime.cpp"


def mpirun(size: int, *command: object, fails: bool = False, by_tcp: bool = False) -> None:
    """All ranks pass. `fails`: transports do, and MPI is not finalised then; mpirun counts that
    as an abnormal end and kills the other ranks, so they linger. by_tcp: as between two nodes, by
    Open MPI."""
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    launcher = ["mpirun", "-n", str(size)]
    if "Open MPI" in version:
        launcher += ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        launcher += ["--mca", "btl", "self,tcp"] if by_tcp else []
    done = subprocess.run(
        [*launcher, sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ
        | {"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "LINGER_S": "4" if fails else "0"},
    )
    assert done.stdout.count("passed") == size, done.stdout + done.stderr
    assert fails or done.returncode == 0, done.stdout + done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_bytes_reach_all_ranks(size):
    mpirun(size, RANKS, "bytes_reach_all_ranks")


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("subject", ["long_entries_are_cut", "duplicates_are_independent"])
def test_contract(subject, size):
    mpirun(size, RANKS, subject)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "subject",
    [
        "a_late_rank_is_named",
        "other_calls_are_refused",
        "the_roll_is_called",
        pytest.param("other_sizes_are_refused", marks=pytest.mark.slow),
        "interrupts_are_heard",
        pytest.param("interrupts_while_it_is_made", marks=pytest.mark.slow),
    ],
)
def test_failures(subject):
    mpirun(3, RANKS, subject, fails=True)


@pytest.mark.mpi
def test_longer_messages_overwrite_nothing():
    mpirun(2, RANKS, "longer_messages_overwrite_nothing", fails=True)


@pytest.mark.mpi
def test_what_comes_late_touches_nothing():
    mpirun(2, RANKS, "what_comes_late_touches_nothing", fails=True, by_tcp=True)


@pytest.mark.mpi
def test_words_amid_a_cut_entry_are_no_piece_of_it():
    mpirun(2, RANKS, "words_amid_a_cut_entry", fails=True)


@pytest.mark.mpi
def test_who_only_sends_hears_of_failures():
    mpirun(2, RANKS, "who_only_sends_hears_of_failures", fails=True)


@pytest.mark.mpi
def test_a_writer_that_waits_for_readers_holds_none_of_them_up(tmp_path):
    """MPI moves nothing for a rank that is not in a call of it: what another one sends for its next
    agreement stays under way, and the batch that the writer waits for goes on."""
    ended = launch(IMPLEMENTATIONS["mpi"], 2, ["lifo"] * 20, tmp_path / "group")
    assert ended.codes == [0], ended.why(0, "lifo")


def test_all_users_of_mpi_have_one_sign_that_it_is_not_finalised():
    assert f'"{NOT_FINALISED}"' in RUNTIME.read_text()


@pytest.mark.mpi
def test_forks_may_end():
    mpirun(2, RANKS, "forks_may_end")


@pytest.mark.mpi
@pytest.mark.parametrize("level", ["multiple", "serialized", "funneled"])
@pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="mpi4py is not installed")
def test_a_communicator_of_mpi4py(level):
    mpirun(4, RANKS, "with_mpi4py", level)


@pytest.mark.mpi
def test_arguments_are_checked():
    mpirun(1, RANKS, "arguments_are_checked")


def test_importing_gear_opens_no_mpi():
    code = "import gear; print(any('libmpi' in line for line in open('/proc/self/maps')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_missing_mpi_library_is_named(tmp_path):
    """Of the build, or of the installation: the library beside the extension."""
    extension = Path(_core.__file__)
    shutil.copy(extension, tmp_path / extension.name)
    code = """
        import _core
        _core.raise_as(InvalidArgument=ValueError, OutOfMemory=MemoryError, CudaError=RuntimeError,
                       TransportError=RuntimeError, CorruptData=RuntimeError, IoError=OSError)
        _core.mpi_transport(0, 1.0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert (
        f"{tmp_path}/libgear_mpi.so: cannot open shared object file" in done.stderr
        if _core.build_info()["mpi"]
        else "this build of GEAR has no transport mpi" in done.stderr
    ), done.stderr
