"""The templates of slurm/ on a real Slurm; the module's `gear` only says how it was started."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distribution.shells import MODULE_TOOLS

if TYPE_CHECKING:
    from distribution.slurm_cluster import Cluster

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = pytest.mark.slurm

SLURM = Path(__file__).parents[2] / "slurm"
ONE_NODE, SEVERAL_NODES = SLURM / "1node.sbatch", SLURM / "multinode-srun.sbatch"
every_template = pytest.mark.parametrize(
    "template", sorted(SLURM.glob("*.sbatch")), ids=lambda template: template.stem
)
on_each = pytest.mark.parametrize(
    "template", [ONE_NODE, SEVERAL_NODES], ids=lambda template: template.stem
)
both_tools = pytest.mark.parametrize(
    "tool", [pytest.param(tool, marks=getattr(pytest.mark, tool)) for tool in MODULE_TOOLS]
)

# One line for each rank: [what is given, a variable]=value, its arguments last.
GEAR = """#!/bin/bash
MPI=${PMIX_RANK:+pmix}${PMI_FD:+pmi2}
for name in NAME SLURMD_NODENAME RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR GLOO_SOCKET_IFNAME \\
  OMP_NUM_THREADS MPI; do line+="$name=${!name:-} "; done
printf '%s|%s\\n' "$line" "$(printf '<%s>' "$@")"
"""


class Tree:
    """Modules gear/1 and gear/2 below `folder`, 2 by default, each with that `gear`."""

    def __init__(self, folder: Path) -> None:
        self.modulefiles = folder / "modulefiles"
        (self.modulefiles / "gear").mkdir(parents=True)
        for version in ("1", "2"):
            home = self.home(version)
            (home / "bin").mkdir(parents=True)
            (home / "slurm").symlink_to(SLURM)
            (home / "bin" / "python3").symlink_to(sys.executable)
            self.put_gear(home / "bin")
            (self.modulefiles / "gear" / version).write_text(
                f"#%Module1.0\nconflict gear\nsetenv GEAR_HOME {home}\nsetenv NAME gear/{version}\n"
                f"prepend-path PATH {home}/bin\n"
            )

    def home(self, version: str) -> Path:
        return self.modulefiles.parent / "gear" / version

    def put_gear(self, folder: Path) -> None:
        (folder / "gear").write_text(GEAR)
        (folder / "gear").chmod(0o755)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def user(cluster: Cluster, tree: Tree) -> dict[str, str]:
    """What the submitting shell has set; Environment Modules is the tool of the site."""
    cluster.use_modules("modules")
    return {"MODULEPATH": str(tree.modulefiles)}


def ranks(log: str) -> list[dict[str, str]]:
    """What each `gear` said, by rank."""
    said = []
    for line, words in re.findall(r"^(NAME=.*?) \|(.*)$", log, re.MULTILINE):
        said.append({**dict(pair.split("=", 1) for pair in line.split()), "words": words})
    return sorted(said, key=lambda each: int(each["RANK"]))


def test_the_nodes_are_apart(cluster: Cluster) -> None:
    """What the tests here rest on: a mistake that two machines would show shows on two nodes."""
    done = cluster.run("srun", "--nodes=2", "bash", "-c", "hostname; touch /dev/shm/$HOSTNAME")
    assert sorted(done.stdout.split()) == ["gear1", "gear2"]
    done = cluster.run("srun", "--nodes=2", "ls", "/dev/shm")
    assert sorted(done.stdout.split()) == ["gear1", "gear2"]
    listen = "import socket; s = socket.create_server(('', 22222)); print(s.accept()[0].recv(9))"
    script = cluster.batch_script(
        "apart",
        "#SBATCH --nodes=2",
        f'srun --nodes=1 --nodelist=gear1 {sys.executable} -c "{listen}" &',
        'sleep 1; call() { srun --nodes=1 --overlap --nodelist=gear2 bash -c "$1"; }',
        "call 'echo local > /dev/tcp/localhost/22222' || echo refused",
        "call 'echo -n remote > /dev/tcp/gear1/22222'; wait",
    )
    job = cluster.submit(script)
    assert "refused" in job.log
    assert "b'remote'" in job.log


@every_template
def test_templates_are_accepted(cluster: Cluster, template: Path) -> None:
    def accepted(script: Path, *options: str) -> bool:
        done = cluster.run("sbatch", "--test-only", *options, script)
        assert done.returncode == 0 or "not available" in done.stderr, done.stderr
        return done.returncode == 0

    assert accepted(template)
    assert not accepted(template, "--nodes=3")
    # Every edit that it offers, alone and together.
    text = template.read_text().replace("=PARTITION", "=standard")
    edits = re.findall(r"^##SBATCH.*$", text, re.MULTILINE)
    assert len(edits) >= 3
    assert "PARTITION" not in text
    copy = cluster.home / "copy"
    for chosen in (*([edit] for edit in edits), edits):
        edited = text
        for edit in chosen:
            edited = edited.replace(edit, edit[1:])
        copy.write_text(edited)
        assert accepted(copy), chosen


@both_tools
def test_several_nodes(cluster: Cluster, user: dict[str, str], tool: str) -> None:
    cluster.use_modules(tool)
    job = cluster.submit(SEVERAL_NODES, "env=pendulum", "a  b*", env=user)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    nodes = ["gear1", "gear1", "gear2", "gear2"]
    assert ranks(job.log) == [
        {
            "NAME": "gear/2",
            "SLURMD_NODENAME": nodes[rank],
            "RANK": f"{rank}",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": f"{rank % 2}",
            "MASTER_ADDR": "gear1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "2",
            "MPI": "",
            "words": "<train><dist=ddp><env=pendulum><a  b*>",
        }
        for rank in range(4)
    ]
    told = rf"^\[slurm\] job {job.number}: ranks: 4, nodes: 2, meeting at gear1:[23]\d{{4}} by eth0"
    assert re.search(told, job.log, re.MULTILINE), job.log
    assert (cluster.home / f"gear-{job.number}.out").exists()


def test_one_node(cluster: Cluster, user: dict[str, str]) -> None:
    job = cluster.submit(ONE_NODE, "seed=1", env=user)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    said = ranks(job.log)
    assert [rank["LOCAL_RANK"] for rank in said] == ["0", "1"]
    assert {rank["SLURMD_NODENAME"] for rank in said} == {said[0]["MASTER_ADDR"]}
    assert {rank["GLOO_SOCKET_IFNAME"] for rank in said} == {""}
    assert {rank["words"] for rank in said} == {"<train><dist=ddp><seed=1>"}


@pytest.mark.parametrize("site", ["pmix", "pmi2"])
def test_ranks_of_horovod_find_the_mpi_of_the_site(
    cluster: Cluster, user: dict[str, str], site: str
) -> None:
    """Open MPI's way, and that of Debian's MPICH, which the site's variable asks for."""
    asked = {} if site == "pmix" else {"SLURM_MPI_TYPE": site}
    job = cluster.submit(SLURM / "horovod.sbatch", env={**user, **asked})
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert [rank["MPI"] for rank in ranks(job.log)] == [site] * 4


@both_tools
@pytest.mark.parametrize("loaded", ["gear/1", "gear/2"])
def test_submitted_from_a_shell_with_the_module(
    cluster: Cluster, user: dict[str, str], tool: str, loaded: str
) -> None:
    """Login shells of jobs may set PATH anew and inherit the list of loaded modules."""
    cluster.use_modules(tool)
    done = cluster.run(
        "bash", "-lc", f'module load {loaded} && sbatch --parsable "$0"', SEVERAL_NODES, env=user
    )
    job = cluster.finish(int(done.stdout))
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert [rank["NAME"] for rank in ranks(job.log)] == ["gear/2"] * 4


def test_without_the_environment_of_the_submitting_shell(
    cluster: Cluster, user: dict[str, str]
) -> None:
    """sbatch --export=NONE: srun, too, would then pass nothing on."""
    with (cluster.home / ".bash_profile").open("a") as profile:
        profile.write(f"export MODULEPATH={user['MODULEPATH']}\n")
    home = f"HOME={cluster.home}"
    job = cluster.submit(f"--export={home},UNUSED=1", SEVERAL_NODES, env=user)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert [rank["NAME"] for rank in ranks(job.log)] == ["gear/2"] * 4


@pytest.mark.slow
@on_each
def test_requeued_it_goes_on_below_what_it_wrote(
    cluster: Cluster, tree: Tree, user: dict[str, str], template: Path
) -> None:
    """As after a node has failed."""
    began = cluster.home / "began"
    for version in ("1", "2"):
        program = tree.home(version) / "bin" / "gear"
        program.write_text(
            GEAR + f"[ -z \"$SLURM_RESTART_COUNT\" ] || exit 0\ntouch '{began}'\nsleep 100\n"
        )
    number = cluster.start(template, "seed=1", env=user)
    until = time.monotonic() + 60
    while not began.exists() and time.monotonic() < until:
        time.sleep(0.1)
    cluster.run("scontrol", "requeue", str(number))
    job = cluster.finish(number)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    first, again, second = job.log.partition(f"[slurm] job {number} was requeued (restart 1)")
    assert again, job.log
    assert {rank["words"] for rank in ranks(first)} == {"<train><dist=ddp><seed=1>"}
    assert {rank["words"] for rank in ranks(second)} == {
        "<train><dist=ddp><checkpoint=auto><seed=1>"
    }


def test_a_venv_that_extends_the_module(
    cluster: Cluster, tree: Tree, user: dict[str, str], tmp_path: Path
) -> None:
    venv = tmp_path / "my venv"
    (venv / "bin").mkdir(parents=True)
    tree.put_gear(venv / "bin")
    activate = venv / "bin" / "activate"
    activate.write_text(f'module load gear/1\nexport NAME=venv PATH="{venv}/bin:$PATH"\n')
    job = cluster.submit(SEVERAL_NODES, env={**user, "GEAR_VENV": str(venv)})
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert [rank["NAME"] for rank in ranks(job.log)] == ["venv"] * 4

    activate.write_text("")
    job = cluster.submit(SEVERAL_NODES, env={**user, "GEAR_VENV": str(venv)})
    assert job.state == "FAILED"
    assert f"GEAR_HOME: is not set: run extend-venv-activate on {venv}" in job.log


def test_a_module_that_is_not_there(cluster: Cluster, tree: Tree, user: dict[str, str]) -> None:
    shutil.rmtree(tree.modulefiles)
    job = cluster.submit(ONE_NODE, env=user)
    assert job.state == "FAILED"
    assert "gear" in job.log
    assert ranks(job.log) == []


def test_a_step_that_is_not_on_the_first_node(cluster: Cluster, user: dict[str, str]) -> None:
    """Refused by rank 0 at once, where the ranks would wait for each other until the time-out."""
    text = SEVERAL_NODES.read_text().replace("srun ", "srun --nodes=1 --ntasks=2 --nodelist=gear2 ")
    script = cluster.home / "elsewhere"
    script.write_text(text)
    job = cluster.submit(script, env=user)
    assert job.state == "FAILED"
    assert (
        "[slurm] the ranks could not meet: rank 0 runs on gear2 and MASTER_ADDR is gear1" in job.log
    )


def test_by_hand_in_an_allocation(cluster: Cluster, user: dict[str, str]) -> None:
    """salloc: the shell is on the login node, the port has to be free on the first node."""
    done = cluster.run(
        *("salloc", "--nodes=2", "--ntasks=2", "bash", "-lec"),
        'module load gear; source "$GEAR_HOME/slurm/env.sh"; '
        'srun "$GEAR_HOME/slurm/env.sh" gear here',
        env=user,
    )
    assert done.returncode == 0, done.stderr
    said = ranks(done.stdout)
    assert [rank["SLURMD_NODENAME"] for rank in said] == ["gear1", "gear2"]
    assert {rank["words"] for rank in said} == {"<here>"}
