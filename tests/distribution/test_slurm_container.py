"""The templates of slurm/ with GEAR_CONTAINER, on a real Slurm and with a stand-in for Apptainer.

The stand-in takes the words that Apptainer takes, prints them, and runs the command where a folder
of the test is the image. No Apptainer has run: Debian 12 has none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from distribution.slurm_cluster import Cluster

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = [pytest.mark.slurm, pytest.mark.subject("slurm")]

SLURM = Path(__file__).parents[2] / "slurm"

# `apptainer exec [--nv] [--bind FOLDER] IMAGE COMMAND...`; the image is a file that names its bin.
APPTAINER = """#!/bin/bash
{ printf 'apptainer'; printf '<%s>' "$@"; echo; } >&2
[ "$1" = exec ] || exit 90
shift
while [[ $1 == -* ]]; do
  case $1 in
    --nv) shift ;;
    --bind) [ -d "$2" ] || exit 91; shift 2 ;;
    *) exit 92 ;;
  esac
done
image=$1
shift
PATH=$(cat "$image"):/usr/bin:/bin exec "$@"
"""
WITH_GEAR = '#!/bin/bash\nIN_IMAGE=yes exec "$@"\n'
GEAR = """#!/bin/bash
for name in IN_IMAGE RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR GLOO_SOCKET_IFNAME PET_NNODES; do
  line+="$name=${!name:-} "
done
printf '%s|%s\\n' "$line" "$(printf '<%s>' "${0##*/}" "$@")"
"""


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


@pytest.fixture
def image(cluster: Cluster, tmp_path: Path) -> Path:
    """An image with slurm/ beside it; the nodes have `apptainer`, and neither GEAR nor `module`."""
    put(tmp_path / "node" / "apptainer", APPTAINER)
    put(tmp_path / "in image" / "with-gear", WITH_GEAR)
    for program in ("gear", "torchrun"):
        put(tmp_path / "in image" / program, GEAR)
    (cluster.home / ".bash_profile").write_text(f'PATH="{tmp_path}/node:$PATH"\n')
    image = tmp_path / "an image" / "gear.sif"
    put(image, str(tmp_path / "in image"))
    (image.parent / "slurm").symlink_to(SLURM)
    return image


def said(log: str) -> list[dict[str, str]]:
    """What each command in the image said, by rank."""
    found = []
    for line, words in re.findall(r"^(IN_IMAGE=.*?) \|(.*)$", log, re.MULTILINE):
        found.append({**dict(pair.split("=", 1) for pair in line.split()), "words": words})
    return sorted(found, key=lambda each: each["RANK"])


def test_each_rank_runs_in_the_image(cluster: Cluster, image: Path) -> None:
    job = cluster.submit(
        SLURM / "multinode-srun.sbatch", "a  b*", env={"GEAR_CONTAINER": str(image)}
    )
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert said(job.log) == [
        {
            "IN_IMAGE": "yes",
            "RANK": f"{rank}",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": f"{rank % 2}",
            "MASTER_ADDR": "gear1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "PET_NNODES": "",
            "words": "<gear><train><dist=ddp><a  b*>",
        }
        for rank in range(4)
    ]
    words = f"apptainer<exec><--bind></tmp><{image}><with-gear><gear><train><dist=ddp><a  b*>"
    assert job.log.count(words) == 4


def test_a_launcher_starts_the_ranks_in_the_image(cluster: Cluster, image: Path) -> None:
    job = cluster.submit(SLURM / "multinode-torchrun.sbatch", env={"GEAR_CONTAINER": str(image)})
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert [(each["IN_IMAGE"], each["PET_NNODES"], each["words"]) for each in said(job.log)] == [
        ("yes", "2", "<torchrun><--no-python><gear><train><dist=ddp>")
    ] * 2


def test_what_a_script_runs_after_training_is_in_the_image(cluster: Cluster, image: Path) -> None:
    options = ("--array=3", "--output=sweep.out")
    job = cluster.submit(*options, SLURM / "array-sweep.sbatch", env={"GEAR_CONTAINER": str(image)})
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert [(each["IN_IMAGE"], each["words"].split(">")[1]) for each in said(job.log)] == [
        ("yes", "<train"),
        ("yes", "<compare"),
    ]


OTHERS = ["1gpu", "actors-learner", "bench", "deepspeed", "horovod", "preempt-requeue"]


@pytest.mark.parametrize("script", OTHERS)
def test_every_other_script_needs_nothing_of_the_nodes(
    cluster: Cluster, image: Path, script: str
) -> None:
    job = cluster.submit(SLURM / f"{script}.sbatch", env={"GEAR_CONTAINER": str(image)})
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    words = {each["words"].split(">")[1] for each in said(job.log)}
    assert words == ({"<check", "<train"} if script == "bench" else {"<train"}), job.log


@pytest.mark.parametrize("gpus", [(), ("--gres=gpu:1",)], ids=["without", "with"])
def test_the_driver_comes_along_where_the_job_has_gpus(
    cluster: Cluster, image: Path, gpus: tuple[str, ...]
) -> None:
    job = cluster.submit(*gpus, SLURM / "1node.sbatch", env={"GEAR_CONTAINER": str(image)})
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert ("apptainer<exec><--nv><--bind>" in job.log) == bool(gpus)


def test_temporary_files_are_bound(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    env = {"GEAR_CONTAINER": str(image), "GEAR_SCRATCH": str(tmp_path / "scratch")}
    job = cluster.submit(SLURM / "1node.sbatch", env=env)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert f"apptainer<exec><--bind><{tmp_path / 'scratch'}>" in job.log


def refused(cluster: Cluster, **env: str) -> str:
    job = cluster.submit(SLURM / "1node.sbatch", env=env)
    assert job.state == "FAILED"
    assert said(job.log) == []
    return job.log


def test_an_image_and_a_venv_are_refused(cluster: Cluster, image: Path) -> None:
    log = refused(cluster, GEAR_CONTAINER=str(image), GEAR_VENV="/my/venv")
    assert f"GEAR_CONTAINER={image} and GEAR_VENV=/my/venv are both set" in log


def test_a_node_without_apptainer(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    (tmp_path / "node" / "apptainer").unlink()
    log = refused(cluster, GEAR_CONTAINER=str(image))
    assert re.search(rf"GEAR_CONTAINER={image}, and there is no command apptainer on gear[12]", log)


def test_an_image_that_is_not_there(cluster: Cluster, image: Path) -> None:
    image.unlink()
    log = refused(cluster, GEAR_CONTAINER=str(image))
    assert re.search(rf"GEAR_CONTAINER={image} is no file that can be read on gear[12]", log)
