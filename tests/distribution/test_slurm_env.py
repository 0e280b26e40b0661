"""slurm/env.sh: what it derives and what it refuses, in an environment as Slurm makes it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

ENV = Path(__file__).parents[2] / "slurm" / "env.sh"

pytestmark = pytest.mark.skipif(
    shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None,
    reason="this machine has no ip, of iproute2",
)

# A batch script on the first of two nodes: names that have an address everywhere.
BATCH = {
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NODELIST": "two nodes",
    "SLURM_PROCID": "0",
    "SLURMD_NODENAME": "localhost",
}
# The second of three tasks, after the batch script has sourced env.sh.
TASK = {
    **BATCH,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "24242",
    "GEAR_JOB_NODES": "localhost 127.0.0.1",
}
FIRST_PORT = 20000 + 42 * 101


@pytest.fixture
def scontrol(tmp_path: Path) -> Path:
    """A folder with a scontrol that knows the nodes."""
    program = tmp_path / "bin" / "scontrol"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        '[ "$*" != "show config" ] || exec echo "TaskPlugin              = task/none"\n'
        '[ "$*" = "show hostnames two nodes" ] || exit 1\n'
        "printf 'localhost\\n127.0.0.1\\n'\n"
    )
    program.chmod(0o755)
    return program.parent


def bash(script: str, env: dict[str, str], path: Path | None = None) -> subprocess.CompletedProcess:
    before = f"{path}:" if path else ""
    return subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{before}{os.environ['PATH']}", **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def in_batch(env: dict[str, str], path: Path, then: str = "") -> subprocess.CompletedProcess:
    return bash(f"source {shlex.quote(str(ENV))}\n{then}", env, path)


def in_task(env: dict[str, str], *command: str) -> subprocess.CompletedProcess:
    return bash(shlex.join([str(ENV), *command]), env)


def variables(env: dict[str, str]) -> dict[str, str]:
    """What a command sees in a task."""
    done = in_task(env, "env", "-0")
    assert done.returncode == 0, done.stderr
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0")[:-1])


# ---- in the batch script ----


def test_the_batch_script_gets_a_meeting_point_and_nothing_else(scontrol):
    state = "declare -F; shopt; set -o; compgen -v | sort"
    done = bash(
        f"{state} >/dev/null; {state}; echo ---; source {ENV}; {state}; echo ---; export -p",
        {**BATCH, "SLURM_CPUS_PER_TASK": "4"},
        scontrol,
    )
    before, after, exported = done.stdout.split("---\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(before.splitlines()) <= set(after.splitlines())
    assert set(after.splitlines()) - set(before.splitlines()) == {
        *("MASTER_ADDR", "MASTER_PORT", "GEAR_JOB_NODES"),
        *("SRUN_CPUS_PER_TASK", "SLURM_EXPORT_ENV", "SLURM_WAIT", "SLURM_KILL_BAD_EXIT"),
    }
    for setting in (
        'MASTER_ADDR="localhost"',
        f'MASTER_PORT="{FIRST_PORT}"',
        'GEAR_JOB_NODES="localhost 127.0.0.1"',
        'SRUN_CPUS_PER_TASK="4"',
        'SLURM_EXPORT_ENV="ALL"',
        'SLURM_WAIT="60"',
        'SLURM_KILL_BAD_EXIT="0"',
    ):
        assert f"declare -x {setting}\n" in exported


def test_a_job_that_was_requeued_goes_on_by_itself(scontrol):
    say = 'echo "<${GEAR_REQUEUED-unset}>"'
    done = in_batch({**BATCH, "SLURM_RESTART_COUNT": "2", "GEAR_REQUEUED": "mine"}, scontrol, say)
    assert (done.returncode, done.stdout) == (0, "<checkpoint=auto>\n")
    assert done.stderr == (
        "[slurm] job 42 was requeued (restart 2): it goes on from its last checkpoint, if it had"
        " written one: checkpoint=auto\n"
    )
    for count in ({}, {"SLURM_RESTART_COUNT": "0"}):
        done = in_batch({**BATCH, **count, "GEAR_REQUEUED": "mine"}, scontrol, say)
        assert (done.returncode, done.stdout, done.stderr) == (0, "<unset>\n", "")


def test_a_port_that_is_taken_is_not_chosen(scontrol):
    with socket.socket() as taken:
        taken.bind(("", FIRST_PORT))
        taken.listen()
        done = in_batch(BATCH, scontrol, 'echo "$MASTER_PORT"')
    assert done.stdout == f"{FIRST_PORT + 1}\n", done.stderr


def test_a_meeting_point_of_before_is_replaced(scontrol):
    leaked = {"MASTER_ADDR": "login1", "MASTER_PORT": "29500"}
    done = in_batch({**BATCH, **leaked}, scontrol, 'echo "$MASTER_ADDR $MASTER_PORT"')
    assert done.stdout == f"localhost {FIRST_PORT}\n"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"SLURM_JOB_ID": ""}, "this is no Slurm job"),
        ({"SLURM_JOB_NODELIST": ""}, "submit the script with sbatch"),
        ({"SLURM_JOB_NODELIST": "odd]"}, "scontrol does not understand SLURM_JOB_NODELIST=odd]"),
        (
            {"SLURM_JOB_NODELIST_HET_GROUP_1": "odd]"},
            "scontrol does not understand SLURM_JOB_NODELIST=two nodes,odd]",
        ),
    ],
)
def test_a_batch_script_is_refused(scontrol, change, sentence):
    env = {**BATCH, **change, "MASTER_ADDR": "login1"}
    done = in_batch(env, scontrol, 'echo "status $? ${MASTER_ADDR:-none}"')
    assert done.stdout == "status 2 none\n"
    assert done.stderr.startswith("[slurm] ")
    assert sentence in done.stderr
    strict = bash(f"set -eu; source {ENV}; echo reached", env, scontrol)
    assert (strict.returncode, strict.stdout) == (2, "")


def test_a_cluster_that_does_not_show_its_configuration_binds_nothing_and_says_so(scontrol):
    program = scontrol / "scontrol"
    program.write_text(program.read_text().replace('exec echo "TaskPlugin ', 'exit 1 # "'))
    done = in_batch(BATCH, scontrol, 'echo "${SLURM_CPU_BIND-unset}"')
    assert (done.returncode, done.stdout) == (0, "unset\n")
    assert "tasks are not bound to CPUs; export SLURM_CPU_BIND=cores" in done.stderr


def test_the_second_node_of_a_heterogeneous_job_may_be_of_its_second_part(scontrol):
    (scontrol / "scontrol").write_text(
        "#!/bin/sh\n[ \"$*\" = 'show hostnames n1,n[7-8]' ] && printf 'n1\\nn7\\nn8\\n'\n"
    )
    parts = {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[7-8]"}
    found = {**BATCH, **parts, "SLURMD_NODENAME": "n1"}
    done = in_batch(found, scontrol, 'echo "$MASTER_ADDR; $GEAR_JOB_NODES"')
    assert done.stdout == "n1; n1 n7\n", done.stderr


@pytest.mark.parametrize(
    ("plugins", "preset", "expected"),
    [
        ("task/affinity,task/cgroup", "", "cores"),
        ("task/cgroup", "none", "none"),
        ("task/none", "", "unset"),
    ],
)
def test_tasks_are_bound_where_the_cluster_can(scontrol, plugins, preset, expected):
    with (scontrol / "scontrol").open("w") as program:
        program.write(
            '#!/bin/sh\n[ "$2" = config ] || exec echo localhost\n'
            f"echo 'TaskPlugin              = {plugins}'\n"
            "sleep 0.2; seq 20000 # what comes behind it, when whoever looks for it may have gone\n"
        )
    env = {**BATCH, **({"SLURM_CPU_BIND": preset} if preset else {})}
    done = in_batch(env, scontrol, 'echo "${SLURM_CPU_BIND-unset}"')
    assert done.stdout == f"{expected}\n", done.stderr


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({}, "requeue 42"),
        ({"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "3"}, "requeue 40_3"),
    ],
)
def test_a_job_whose_ranks_go_on_is_requeued(scontrol, tmp_path, more, asked):
    # Slurm ends the script of a job that it requeues; the stand-in does so to its caller.
    (scontrol / "scontrol").write_text(
        f"#!/bin/sh\necho \"$*\" >'{tmp_path}/asked'\n(sleep 0.5; kill $PPID) &\n"
    )
    done = bash(f"{ENV} --ended 75", {**BATCH, **more}, scontrol)
    assert done.returncode not in (0, 75)
    assert (tmp_path / "asked").read_text() == f"{asked}\n"
    assert done.stderr.startswith("[slurm] job 42 saved its state and goes on when Slurm starts it")


def test_a_job_that_failed_is_not_requeued(scontrol):
    done = bash(f"{ENV} --ended 2", BATCH, scontrol)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_warning_before_the_ranks_had_begun_says_so(scontrol):
    done = bash(f"{ENV} --ended 138", BATCH, scontrol)
    assert done.returncode == 2
    assert done.stderr.startswith("[slurm] SIGUSR1 came to job 42 before its ranks had begun")


def test_a_job_that_slurm_does_not_requeue_says_so(scontrol):
    (scontrol / "scontrol").write_text("#!/bin/sh\necho 'Job is not requeueable' >&2; exit 1\n")
    done = bash(f"{ENV} --ended 75", BATCH, scontrol)
    assert done.returncode == 2
    assert "Job is not requeueable\n[slurm] job 42 saved its state, and Slurm does" in done.stderr


def test_without_python_there_is_no_port(scontrol):
    for tool in ("bash", "cat", "dirname"):
        (scontrol / tool).symlink_to(f"/bin/{tool}")
    done = in_batch({**BATCH, "PATH": str(scontrol)}, scontrol, "echo $?")
    assert done.stdout == "2\n"
    assert "[slurm] no free port on localhost" in done.stderr
    assert "load the module gear first" in done.stderr


@pytest.mark.zsh
def test_another_shell_is_refused(scontrol):
    done = bash(f"zsh -c 'source {ENV}; echo $?'", BATCH, scontrol)
    assert done.stdout == "2\n"
    assert done.stderr.startswith("[slurm] env.sh is for bash")


# ---- in a task ----


def test_a_task_knows_its_place():
    seen = variables({**TASK, "SLURM_CPUS_PER_TASK": "24"})
    expected = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "24242",
        "OMP_NUM_THREADS": "24",
        "GEAR_NUM_THREADS": "16",  # the most that GEAR takes
        "TMPDIR": "/tmp",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
    }
    assert {name: seen.get(name) for name in expected} == expected


def test_rank_0_says_what_was_derived():
    quiet = in_task(TASK, "true")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    told = in_task({**TASK, "SLURM_PROCID": "0"}, "true")
    assert told.returncode == 0
    assert told.stderr == (
        "[slurm] job 42: ranks: 3, nodes: 2, meeting at localhost:24242 by lo (NCCL: lo), "
        "threads of a rank: 1, temporary files: /tmp\n"
    )


@pytest.mark.parametrize(
    ("given", "count"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"CUDA_VISIBLE_DEVICES": "2", "SLURM_GPUS_PER_TASK": "1"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPU_BIND": "closest"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-0d3a,MIG-77e1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, None),
        ({}, None),
    ],
)
def test_gpus_are_left_as_slurm_binds_them_and_counted(scontrol, given, count):
    """In the batch script and in a task; SLURM_GPU_BIND=none would show those of other jobs."""
    names = ("CUDA_VISIBLE_DEVICES", "SLURM_GPU_BIND", "SLURM_GPUS_PER_TASK", "SLURM_GPUS_ON_NODE")
    show = " ".join(f'"${{{name}-unset}}"' for name in names)
    kept = "".join(f"{given.get(name, 'unset')}\n" for name in names)
    batch = in_batch({**BATCH, **given}, scontrol, f"printf '%s\\n' {show}")
    assert (batch.stdout, batch.stderr) == (kept, "")
    task = in_task({**TASK, **given, "SLURM_PROCID": "0"}, "sh", "-c", f"printf '%s\\n' {show}")
    assert task.stdout == kept
    told = re.findall(r", GPUs that a rank sees: (\d+), temporary files", task.stderr)
    assert told == ([] if count is None else [str(count)]), task.stderr


def test_what_is_preset_stays():
    preset = {
        "OMP_NUM_THREADS": "3",
        "GEAR_NUM_THREADS": "5",
        "GLOO_SOCKET_IFNAME": "hsn0",
        "NCCL_SOCKET_IFNAME": "^lo",
    }
    seen = variables({**TASK, **preset, "SLURM_CPUS_PER_TASK": "8"})
    assert {name: seen[name] for name in preset} == preset
    half = variables({**TASK, "NCCL_SOCKET_IFNAME": "hsn"})
    assert (half["GLOO_SOCKET_IFNAME"], half["NCCL_SOCKET_IFNAME"]) == ("lo", "hsn")


def test_a_command_that_starts_ranks_itself_finds_the_nodes():
    """torchrun takes its defaults from PET_*, and tells its ranks who they are."""
    done = in_task({**TASK, "SLURM_CPUS_PER_TASK": "9"}, "--ranks", "4", "env")
    assert done.returncode == 0, done.stderr
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    expected = {
        "PET_NNODES": "3",
        "PET_NODE_RANK": "1",
        "PET_NPROC_PER_NODE": "4",
        "PET_MASTER_ADDR": "localhost",
        "PET_MASTER_PORT": "24242",
        "OMP_NUM_THREADS": "2",
    }
    assert {name: seen.get(name) for name in expected} == expected
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & seen.keys()
    told = in_task({**TASK, "SLURM_PROCID": "0"}, "--ranks", "4", "true").stderr
    assert "job 42: ranks: 12, nodes: 2" in told
    for words in (["--ranks", "none", "env"], ["--ranks", "4"], ["--ranks"]):
        done = in_task(TASK, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "[slurm] --ranks" in done.stderr


def test_on_one_node_no_interface_is_chosen():
    seen = variables({**TASK, "GEAR_JOB_NODES": "localhost"})
    assert not {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} & seen.keys()


def test_temporary_files_go_to_the_first_folder_that_is_there(tmp_path):
    a, b = tmp_path / "a b", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    absent = str(tmp_path / "absent")
    for preset, expected in (
        ({"GEAR_SCRATCH": str(a), "SLURM_TMPDIR": str(b)}, a),
        ({"SLURM_TMPDIR": str(b), "TMPDIR": str(a)}, b),
        ({"SLURM_TMPDIR": absent, "TMPDIR": str(a)}, a),
        ({"TMPDIR": absent}, Path("/tmp")),
    ):
        assert variables({**TASK, **preset})["TMPDIR"] == str(expected), preset


def test_the_command_replaces_the_script_and_gets_its_words():
    words = ["bash", "-c", 'echo "$PPID $1"; exit 7', "bash", "a  b*"]
    done = bash(f'echo "$$"; {shlex.join([str(ENV), *words])}; exit $?', TASK)
    own, seen = done.stdout.splitlines()
    assert (done.returncode, seen) == (7, f"{own} a  b*")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"SLURM_STEP_ID": ""}, "this is no task of a job step"),
        ({"SLURM_PROCID": ""}, "start it by srun: srun"),
        ({"MASTER_ADDR": ""}, "into the batch script before srun"),
        ({"GEAR_JOB_NODES": ""}, "MASTER_ADDR, MASTER_PORT or GEAR_JOB_NODES is not set"),
        (
            {"SLURM_PROCID": "0", "SLURMD_NODENAME": "node7"},
            "rank 0 runs on node7 and MASTER_ADDR is localhost",
        ),
        ({"MASTER_ADDR": "no.such.node.invalid"}, "has no address on localhost"),
        ({"GEAR_SCRATCH": "/no/such/folder"}, "GEAR_SCRATCH=/no/such/folder is no folder"),
        ({"SLURMD_NODENAME": "n", "GEAR_JOB_NODES": "x.invalid n"}, "leads from n to x.invalid"),
    ],
)
def test_a_task_is_refused(change, sentence):
    done = in_task({**TASK, **change}, "echo", "reached")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("[slurm] ")
    assert sentence in done.stderr


def test_a_command_that_is_not_there_is_refused():
    done = in_task(TASK, "no-such-command")
    assert done.returncode == 2
    assert "[slurm] there is no command no-such-command on localhost" in done.stderr


def test_usage():
    told = in_task(TASK, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert 'srun "$GEAR_HOME/slurm/env.sh" COMMAND' in told.stdout
    for words in ([], ["--unknown"]):
        done = in_task(TASK, *words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", told.stdout)
