"""A rank that waits for others says so: a launcher's variables may be there without the ranks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from ports import fresh_port

import gear
from gear.distributed import waiting
from gear.distributed.meeting import from_environment, from_torch
from gear.distributed.meeting.launch import ALONE, find_launch
from gear.distributed.waiting import Waiting

SLURM = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
STEP = SLURM | {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "localhost",
}
PTY = STEP | {"SLURM_PTY_PORT": "40123", "SLURM_JOB_NAME": "bash"}
PLAIN = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}
LAUNCHERS = {
    "srun": STEP,
    "srun --pty bash": PTY,
    "torchrun": PLAIN | {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"},
    "PMI": {"PMI_RANK": "0", "PMI_SIZE": "4"},
    "MVAPICH": {"MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "4"},
    "horovodrun": {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "4"},
    "by hand": PLAIN,
}
PACKAGES = {"torch", "mpi4py", "horovod"}


class Heard(logging.Handler):
    """The warnings of the logger `gear`; `event` is set by the first."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self.event.set()


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger("gear").addHandler(handler)
    yield handler
    logging.getLogger("gear").removeHandler(handler)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No launcher's variables; a wait says something soon."""
    for name in {name for env in LAUNCHERS.values() for name in env}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(waiting, "QUIET_S", 0.05)
    monkeypatch.setattr(from_torch, "SHELL_S", 0.05)
    return monkeypatch


# ---- what is said ----


def test_a_long_wait_is_told_of_once_with_what_is_known_by_then(heard: Heard) -> None:
    with Waiting("rank 0 of 4", "the other ranks", "do this", most_s=300, quiet_s=0.05) as wait:
        wait.tell([2, 3])
        assert heard.event.wait(60)
    assert heard.said == [
        "[group] rank 0 of 4 has waited 0.05 s for ranks 2 and 3, and waits up to 300 s: do this"
    ]


def test_nothing_is_said_of_a_wait_that_is_over(heard: Heard) -> None:
    with Waiting("rank 0 of 4", "the other ranks", "do this", quiet_s=3600) as wait:
        timer = wait._timer
    timer.join(60)
    assert not timer.is_alive()
    assert heard.said == []


def test_a_wait_that_an_error_ends_says_nothing_later(heard: Heard) -> None:
    wait = Waiting("rank 0 of 4", "the other ranks", "do this", quiet_s=3600)
    with pytest.raises(ZeroDivisionError), wait:
        raise ZeroDivisionError
    wait._timer.join(60)
    assert not wait._timer.is_alive()


# ---- variables of several ranks, and one process ----


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_advice_makes_one_process_of_it(name: str) -> None:
    env = LAUNCHERS[name] | {"MASTER_PORT": "29500"}
    launch = find_launch(env, PACKAGES.__contains__)
    assert (launch.rank, launch.size) == (0, 4)
    assert ALONE in launch.advice
    assert f"{launch.found} say that {launch.launcher} started 4 ranks" in launch.advice
    given = dict(word.split("=") for word in ALONE.split())
    followed = find_launch(env | given, PACKAGES.__contains__)
    assert (followed.size, followed.via) == (1, "none")


@pytest.mark.parametrize("name", ["Open MPI", "PMI", "MVAPICH", "horovodrun"])
def test_what_is_refused_at_once_says_so_too(name: str) -> None:
    """Without an address, and without a library of the launcher's."""
    with pytest.raises(gear.InvalidArgument, match=f"if this process is alone, give it {ALONE}$"):
        find_launch(LAUNCHERS[name], {"torch"}.__contains__)


@pytest.mark.parametrize("name", [n for n in LAUNCHERS if n != "torchrun"])
def test_a_rank_0_without_others_says_whom_it_waits_for(
    name: str, alone: pytest.MonkeyPatch, heard: Heard
) -> None:
    alone.setattr(from_environment, "installed", {"torch"}.__contains__)
    for key, value in LAUNCHERS[name].items():
        alone.setenv(key, value)
    alone.setenv("MASTER_ADDR", "localhost")
    alone.setenv("MASTER_PORT", str(fresh_port()))
    with pytest.raises(gear.TransportError, match="ranks 1, 2 and 3 did not start within 2 s"):
        gear.Group.from_env(timeout_s=2)
    [said] = heard.said
    assert said.startswith("[group] rank 0 of 4 has waited 0.05 s for ")
    assert "and waits up to 2 s: " in said
    assert said.endswith(f"or give this process {ALONE}, by which it is alone")


@pytest.mark.parametrize("agent", [False, True])
def test_a_rank_without_rank_0_says_so(
    agent: bool, alone: pytest.MonkeyPatch, heard: Heard
) -> None:
    """Also one of torchrun's, whose agent serves the address and has gone."""
    alone.setattr(from_environment, "installed", {"torch"}.__contains__)
    env = LAUNCHERS["torchrun"] if agent else PLAIN | {"RANK": "1"}
    port = str(fresh_port())
    for key, value in (env | {"MASTER_PORT": port}).items():
        alone.setenv(key, value)
    with pytest.raises(gear.TransportError, match="found no rank 0"):
        gear.Group.from_env(timeout_s=1)
    [said] = heard.said
    who = "torchrun" if agent else "rank 0"
    whom = f"{who}, which serves localhost:{port}"
    assert f"has waited 0.05 s for {whom}, and waits up to 1 s: RANK, WORLD_SIZE say" in said


@pytest.mark.parametrize("name", ["Open MPI", "PMI", "MVAPICH"])
def test_the_first_call_of_mpi_is_told_of(
    name: str, alone: pytest.MonkeyPatch, heard: Heard
) -> None:
    class Enough(Exception):
        pass

    def initialise(timeout_s: float) -> None:
        assert heard.event.wait(60)
        raise Enough

    alone.setattr(from_environment, "installed", PACKAGES.__contains__)
    alone.setattr(from_environment, "initialise_mpi", initialise)
    for key, value in LAUNCHERS[name].items():
        alone.setenv(key, value)
    with pytest.raises(Enough):
        gear.Group.from_env()
    [said] = heard.said
    assert "for the other ranks, in MPI_Init, and waits without end: " in said
