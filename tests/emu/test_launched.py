"""Which real rank a process is that a launcher has started, and what its environment says then."""

from __future__ import annotations

import pytest

import gear.emu as emu
from gear.emu.launched import counted, place, rank_in
from gear.errors import InvalidArgument

JOB = emu.Job(512, real=(3, 9))
TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
DEEPSPEED = {name: TORCHRUN[name] for name in TORCHRUN if name != "TORCHELASTIC_RUN_ID"}
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize("env", [TORCHRUN, DEEPSPEED, SRUN, MPIRUN])
def test_launchers_count_the_real_ranks(env: dict[str, str]) -> None:
    assert rank_in(JOB, env) == 9
    own = env | place(JOB, env)
    assert own["RANK"] == "9"
    assert own["WORLD_SIZE"] == "512"
    assert own["LOCAL_RANK"] == ("0" if env is SRUN else "1")
    assert own["MASTER_ADDR"] == "n1"
    assert int(own["MASTER_PORT"]) > 0
    # What a process of that environment starts is the same rank.
    assert rank_in(JOB, own) == 9
    assert place(JOB, own) == {}


def test_what_slurm_says_is_of_the_job_too() -> None:
    own = place(JOB, SRUN)
    assert own["SLURM_PROCID"] == "9"
    assert own["SLURM_NTASKS"] == own["SLURM_STEP_NUM_TASKS"] == "512"
    assert "SLURM_LOCALID" not in own


@pytest.mark.parametrize("env", [TORCHRUN, DEEPSPEED, SRUN, MPIRUN])
def test_all_ranks_are_real(env: dict[str, str]) -> None:
    own = place(emu.Job(2, real=(0, 1)), env)
    assert own["RANK"] == own["GEAR_EMU_RANK"] == "1"
    assert own["WORLD_SIZE"] == "2"


def test_without_a_launcher() -> None:
    assert place(JOB, {}) == {}
    assert place(emu.Job(512), {}) == {}
    assert rank_in(emu.Job(512, real=(5,)), {}) == 5


@pytest.mark.parametrize("by_hand", [{"RANK": "3"}, {"RANK": "3", "WORLD_SIZE": "512"}])
def test_rank_by_hand(by_hand: dict[str, str]) -> None:
    assert rank_in(JOB, by_hand) == 3
    assert place(JOB, by_hand) == {"GEAR_EMU_RANK": "3", "RANK": "3", "WORLD_SIZE": "512"}
    assert rank_in(JOB, by_hand | place(JOB, by_hand)) == 3


def test_half_a_pair_is_somebodys_own() -> None:
    stray = {"WORLD_SIZE": "2"}
    assert rank_in(JOB, SRUN | stray) == 9
    assert place(JOB, SRUN | stray)["WORLD_SIZE"] == "512"
    assert rank_in(emu.Job(512), stray) == 0
    assert place(emu.Job(512), stray) == {}


def test_a_shell_of_srun_is_one_process() -> None:
    shell = SRUN | {"SLURM_PTY_PORT": "40000"}
    assert place(JOB, shell) == {}
    assert rank_in(emu.Job(512, real=(5,)), shell) == 5


def test_ranks_of_mpirun_on_one_host_meet_there() -> None:
    env = {
        **{name: MPIRUN[name] for name in MPIRUN if name.startswith("OMPI")},
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": "4711",
    }
    own = place(JOB, env)
    assert own["MASTER_ADDR"] == "127.0.0.1"
    assert own["LOCAL_WORLD_SIZE"] == "2"
    others = env | {"OMPI_COMM_WORLD_RANK": "0"}
    assert place(JOB, others)["MASTER_PORT"] == own["MASTER_PORT"]
    assert place(JOB, env | {"PMIX_NAMESPACE": "4712"})["MASTER_PORT"] != own["MASTER_PORT"]
    with pytest.raises(InvalidArgument, match="MASTER_ADDR is not set"):
        place(JOB, env | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"})


def test_a_launcher_inside_of_a_rank_is_refused() -> None:
    rank = place(JOB, TORCHRUN)
    inside = TORCHRUN | rank | {"RANK": "0", "WORLD_SIZE": "2"}
    with pytest.raises(InvalidArgument, match="RANK=0 of 2 below rank 9 of 512: a launcher has"):
        rank_in(JOB, inside)


def test_among_the_real_ranks() -> None:
    rank = TORCHRUN | place(JOB, TORCHRUN)
    assert counted(JOB, rank) == {"RANK": "1", "WORLD_SIZE": "2"}
    alone = counted(emu.Job(512), {})
    assert alone == {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


def test_one_task_of_slurm_starts_the_ranks_itself() -> None:
    one = SRUN | {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert place(JOB, one) == {}
    assert place(emu.Job(512, real=(5,)), one)["RANK"] == "5"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"RANK": "4", "WORLD_SIZE": "512"}, "RANK=4: a real rank is allowed: 3, 9 of 512"),
        ({"RANK": "x"}, "RANK=x: a real rank"),
        ({}, r"is alone, and 2 ranks of the job are real \(3, 9 of 512\): start as many processes"),
        (
            TORCHRUN | {"WORLD_SIZE": "512"},
            "is by RANK, WORLD_SIZE one of 512, and 2 ranks of the job are real",
        ),
        (
            TORCHRUN | {"WORLD_SIZE": "3"},
            "is by RANK, WORLD_SIZE one of 3, and 2 ranks of the job are real",
        ),
        (
            SRUN | {"SLURM_STEP_NUM_TASKS": "4"},
            "is by SLURM_PROCID, SLURM_STEP_NUM_TASKS one of 4, and",
        ),
    ],
)
def test_what_is_no_real_rank(env: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        rank_in(JOB, env)
