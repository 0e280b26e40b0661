"""What the variables of launchers mean, right, half set and wrong; nothing is launched."""

from __future__ import annotations

import pytest

import gear
from gear.distributed.meeting.launch import OWN_MPI, Launch, find_launch, first_host, slurm_port

PLAIN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "gear1", "MASTER_PORT": "29500"}
STEP = {
    "SLURM_JOB_ID": "7001",
    "SLURM_STEP_ID": "3",
    "SLURM_PROCID": "2",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gear[2-3]",
}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}


def found(env: dict[str, str], *packages: str) -> Launch:
    return find_launch(env, lambda package: package in packages)


def test_no_launcher_is_one_process() -> None:
    assert found({"HOME": "/root", "MASTER_PORT": "29500"}) == Launch("single", 0, 1, "none")


@pytest.mark.parametrize(
    ("env", "packages", "expected"),
    [
        (PLAIN, ["torch"], ("environment", 1, 4, "store", "gear1", 29500)),
        (PLAIN, [], ("environment", 1, 4, "store", "gear1", 29500)),
        (OPEN_MPI, [OWN_MPI], ("mpirun", 3, 4, "mpi", "", 0)),
        ({"PMIX_RANK": "5"}, [OWN_MPI], ("mpirun", 5, 0, "mpi", "", 0)),
        (
            {**PLAIN, "TORCHELASTIC_RUN_ID": "none"},
            ["torch"],
            ("torchrun", 1, 4, "store", "gear1", 29500),
        ),
        # A launcher on every node, itself started by srun or mpirun: the inner one counts.
        (
            PLAIN | STEP | OPEN_MPI,
            ["torch", "mpi4py"],
            ("environment", 1, 4, "store", "gear1", 29500),
        ),
        (OPEN_MPI, ["torch", "mpi4py"], ("mpirun", 3, 4, "mpi", "", 0)),
        (STEP | OPEN_MPI, ["torch", "mpi4py"], ("mpirun", 3, 4, "mpi", "", 0)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, ["mpi4py"], ("mpirun", 0, 2, "mpi", "", 0)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"} | STEP, ["mpi4py"], ("srun", 2, 4, "mpi", "", 0)),
        (
            {"PMI_RANK": "2", "PMI_SIZE": "4"} | STEP,
            ["torch"],
            ("srun", 2, 4, "store", "gear2", slurm_port(STEP)),
        ),
        ({"PMIX_RANK": "5"}, ["mpi4py"], ("mpirun", 5, 0, "mpi", "", 0)),
        ({"PMIX_RANK": "2"} | STEP, ["mpi4py"], ("srun", 2, 4, "mpi", "", 0)),
        (
            OPEN_MPI | {"MASTER_ADDR": "gear1", "MASTER_PORT": "1234"},
            ["torch"],
            ("mpirun", 3, 4, "store", "gear1", 1234),
        ),
        (
            {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"},
            ["torch", "horovod"],
            ("horovodrun", 1, 2, "horovod", "", 0),
        ),
        (
            {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            ["torch"],
            ("horovodrun", 1, 2, "store", "a", 1),
        ),
        (STEP, ["torch"], ("srun", 2, 4, "store", "gear2", slurm_port(STEP))),
        (
            STEP | {"MASTER_ADDR": "gear9", "MASTER_PORT": "77"},
            ["torch"],
            ("srun", 2, 4, "store", "gear9", 77),
        ),
        ({"PMIX_RANK": "2"} | STEP, ["torch"], ("srun", 2, 4, "store", "gear2", slurm_port(STEP))),
        ({"RANK": "0", "WORLD_SIZE": "1"}, [], ("environment", 0, 1, "none", "", 0)),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
            [],
            ("mpirun", 0, 1, "none", "", 0),
        ),
    ],
)
def test_launchers(env: dict[str, str], packages: list[str], expected: tuple[object, ...]) -> None:
    launch = found(env, *packages)
    assert (
        launch.launcher,
        launch.rank,
        launch.size,
        launch.via,
        launch.address,
        launch.port,
    ) == expected
    assert launch.found


def test_a_batch_script_is_no_step() -> None:
    """Slurm tells a batch script of the tasks that it may start, and srun's shell of none."""
    batch = {"SLURM_JOB_ID": "7001", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
    assert found(batch).size == 1


@pytest.mark.parametrize(
    ("env", "packages", "message"),
    [
        ({"RANK": "1"}, [], r"RANK=1 is set and WORLD_SIZE is not: set both, RANK from 0 to"),
        ({"WORLD_SIZE": "2"}, [], r"WORLD_SIZE=2 is set and RANK is not"),
        ({**PLAIN, "RANK": "4"}, ["torch"], r"RANK=4: 0 to 3 is allowed with WORLD_SIZE=4"),
        ({**PLAIN, "RANK": "one"}, ["torch"], r"RANK='one': an integer, 0 or more, is allowed"),
        ({**PLAIN, "RANK": "-1"}, ["torch"], r"RANK='-1': an integer, 0 or more"),
        ({**PLAIN, "WORLD_SIZE": "0"}, ["torch"], r"WORLD_SIZE='0': an integer, 1 or more"),
        ({**PLAIN, "MASTER_PORT": "70000"}, ["torch"], r"MASTER_PORT='70000'.* 1 to 65535"),
        ({**PLAIN, "MASTER_PORT": ""}, ["torch"], r"not set, and MASTER_ADDR=gear1 is: set"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, ["torch"], r"MASTER_ADDR is not set, and RANK, WORLD"),
        (OPEN_MPI, ["torch"], r"ADDR is not set, and OMPI_COMM_WORLD_RANK.*or install mpi4py"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, ["mpi4py"], r"OMPI_COMM_WORLD_SIZE is not: set both"),
        ({"HOROVOD_SIZE": "2"}, ["horovod"], r"HOROVOD_SIZE=2 is set and HOROVOD_RANK is not"),
        ({"PMIX_RANK": "0"}, ["torch"], r"PMIX_RANK=0 tells the rank but not the number of ranks"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "2"}, ["torch"], r"SLURM_PROCID=2: 0 to 1 is allowed"),
    ],
)
def test_wrong_or_half_set(env: dict[str, str], packages: list[str], message: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=r"\[group\] .*" + message):
        found(env, *packages)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("gear1", "gear1"),
        ("gear1,gear2", "gear1"),
        ("gear[1-2]", "gear1"),
        ("node[007,009-012]-ib", "node007-ib"),
        ("rack[2-3]n[07,09-12],login1", "rack2n07"),
        ("login1,rack[2-3]n[07,09-12]", "login1"),
        ("", ""),
    ],
)
def test_first_host(nodes: str, host: str) -> None:
    assert first_host(nodes) == host


def test_ports_of_steps() -> None:
    """Neighbouring jobs and steps differ, all ranks of one agree, and none is out of range."""
    ports = [
        slurm_port({"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)})
        for job in range(7000, 7040)
        for step in range(50)
    ]
    assert len(set(ports)) == len(ports)
    assert min(ports) >= 20000
    assert max(ports) < 32000
    huge = {"SLURM_JOB_ID": str(2**31 - 1), "SLURM_STEP_ID": str(2**32 - 6)}
    assert 20000 <= slurm_port(huge) < 32000
