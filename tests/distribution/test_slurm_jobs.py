"""Every template of slurm/ trains to its end on a real Slurm of two virtual nodes.

They run on two nodes with two ranks each, as far as a template can: `1gpu` has one rank, `1node`
two on its one node, `actors-learner` one and three, and `array-sweep` is two jobs here, each with
a rank on either node.

All jobs are submitted at once, and each test looks at one of them; those that are to fail have one
rank on each node. Those that are interrupted are in test_slurm_survival.py, the first two templates
in test_slurm_training.py.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distribution.slurm_site import Site

SLURM = Path(__file__).parents[2] / "slurm"

pytest_plugins = ["distribution.slurm_cluster", "distribution.slurm_site"]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.subject("slurm"),
    pytest.mark.modules,
    pytest.mark.slow,
]

# Pendulum as a test can afford it: an episode has 200 steps of its rank.
SHORT = (
    *("device=cpu", "algo.learning_starts=400", "algo.batch_size=32", "model.hidden=[32]"),
    *("logger=csv", "checkpoint_every=0"),
)
RUN = (*SHORT, "total_steps=800")
# Who would wait for ever gives up after that.
SOON = "dist.timeout_s=8"
ONE_EACH = ("--set", "ntasks-per-node=1")  # of two nodes


@pytest.fixture(scope="module")
def jobs(site: Site) -> dict[str, int]:
    """The jobs of this module, by what they are for."""
    folder = "hydra.run.dir=runs/{}".format
    sweep = ("--nodes", "2", "--set", "array=0-1", "--set", "job-name=sweep")

    def fails(name: str, *words: str, **edits: str) -> int:
        script = str(edited(site, name, **edits))
        return site.start(script, *RUN, SOON, folder(name), *words, options=ONE_EACH)

    at_port = 'python3 -m http.server "$MASTER_PORT" >/dev/null 2>&1 & sleep 3'
    return {
        "1gpu": site.start("1gpu", *RUN, folder("1gpu")),
        "multinode-torchrun": site.start("multinode-torchrun", *RUN, folder("torchrun")),
        "actors-learner": site.start("actors-learner", *RUN, folder("actors-learner")),
        "array-sweep": site.start("array-sweep", *RUN, "dist=ddp", options=sweep),
        "bench": site.start("bench", *RUN, folder("bench")),
        "taken port": fails("taken", before_srun=at_port),
        "unreachable": fails("unreachable", in_tasks='[ "$RANK" = 0 ] || MASTER_ADDR=10.77.250.1'),
        "full scratch": fails(
            "full", before_srun=FULL_FOLDER + " scratch; export GEAR_SCRATCH=scratch"
        ),
        "full disk": fails("disk", "checkpoint_every=400", before_srun=FULL_FOLDER + " runs/disk"),
    }


# A file system of 300 KiB on each node, at a path that the job names.
FULL_FOLDER = (
    'full() { srun --overlap --ntasks-per-node=1 --ntasks=2 bash -c \'mkdir -p "$0" && '
    'mount -t tmpfs -o size=300k tmpfs "$0" && head -c 290k /dev/zero >"$0/taken"\' "$1"; }; full'
)


def edited(site: Site, name: str, *, before_srun: str = "", in_tasks: str = "") -> Path:
    """multinode-srun as a user may have changed it."""
    text = (SLURM / "multinode-srun.sbatch").read_text()
    if in_tasks:
        text = text.replace(
            '"$env" gear train', f'"$env" bash -c \'{in_tasks}; exec gear train "$@"\' sh'
        )
    text = text.replace("\nsrun ", f"\n{before_srun}\nsrun ")
    path = site.cluster.home / f"{name}.sbatch"
    path.write_text(text)
    return path


def summary(site: Site, run: str) -> dict[str, Any]:
    return json.loads((site.cluster.home / "runs" / run / "summary.json").read_text())


def shown(log: str) -> str:
    """Without the borders and breaks of tables."""
    return re.sub(r"[\s│┃]+", " ", log)


def test_every_template_is_submitted_by_a_test() -> None:
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_slurm_*.py"))
    missing = [t.stem for t in SLURM.glob("*.sbatch") if f'"{t.stem}' not in texts]
    assert missing == []


def test_1gpu(site: Site, jobs: dict[str, int]) -> None:
    job = site.succeed(jobs["1gpu"])
    assert f"[slurm] job {job.number}: ranks: 1, nodes: 1, meeting at gear" in job.log
    assert summary(site, "1gpu")["env_steps"] == 800


def test_multinode_torchrun(site: Site, jobs: dict[str, int]) -> None:
    """srun starts torchrun twice, and each of them two ranks."""
    job = site.succeed(jobs["multinode-torchrun"])
    assert f"job {job.number}: ranks: 4, nodes: 2, meeting at gear1:" in job.log
    assert "threads of a rank: 2" in job.log
    words = shown(job.log)
    assert "ranks 4, started by torchrun" in words
    assert "nodes 2, ranks on each: 2 " in words
    assert summary(site, "torchrun")["updates"] == 101


def test_actors_learner(site: Site, jobs: dict[str, int]) -> None:
    """A heterogeneous job: one rank learns on its node, three act on another."""
    job = site.succeed(jobs["actors-learner"])
    words = shown(job.log)
    assert "ranks 4, started by" in words
    assert "nodes 2, ranks on each: 1 to 3" in words
    assert "roles 1 learn, 3 only act" in words
    assert "batch 32 a rank, 32 in all" in words
    assert summary(site, "actors-learner")["env_steps"] == 800
    assert summary(site, "actors-learner")["episodes"] == 4


def test_array_sweep(site: Site, jobs: dict[str, int]) -> None:
    """Whoever ends last draws one table and one plot of all. Each seed is trained by ranks on both
    nodes."""
    first = jobs["array-sweep"]
    folder = site.cluster.home / f"outputs/sweep-{first}"
    logs = [site.finish_task(first, seed, "sweep") for seed in range(2)]
    whole = [log for log in logs if "2 runs" in log]
    assert whole, logs
    for seed in range(2):
        assert "ranks: 2, nodes: 2, meeting at gear1:" in logs[seed]
        assert f"outputs/sweep-{first}/seed{seed}" in whole[0]
        with (folder / f"seed{seed}" / "metrics.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == 4
    assert f"learning curves: outputs/sweep-{first}/compare.png" in whole[0]
    assert (folder / "compare.png").stat().st_size > 1000


def test_bench(site: Site, jobs: dict[str, int]) -> None:
    job = site.finish(jobs["bench"])
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    words = shown(job.log)
    assert words.count("CUDA driver") == 2  # of each node
    assert re.search(r"samples/s [\d,]+ ", words), job.log
    assert re.search(r"time in replay \d", words), job.log


# ---- what goes wrong: one sentence, and nothing hangs ----


def refused(site: Site, number: int, *sentences: str) -> None:
    job = site.finish(number)
    assert job.state == "FAILED", job.log
    assert "Traceback" not in job.log
    for sentence in sentences:
        assert re.search(sentence, job.log), job.log


def test_a_taken_port(site: Site, jobs: dict[str, int]) -> None:
    refused(
        site, jobs["taken port"], r"gear: \[transport\] rank 0 of 2 could not serve the .*in use"
    )


def test_a_meeting_point_out_of_reach(site: Site, jobs: dict[str, int]) -> None:
    refused(
        site,
        jobs["unreachable"],
        r"gear: \[transport\] rank \d of 2 found no rank 0 at 10\.77\.250",
    )


def test_a_full_scratch_folder(site: Site, jobs: dict[str, int]) -> None:
    refused(
        site, jobs["full scratch"], r"\[slurm\] GEAR_SCRATCH=scratch is no folder with .* room on"
    )


def test_a_full_disk(site: Site, jobs: dict[str, int]) -> None:
    refused(site, jobs["full disk"], r"gear: \[.*No space left on device")
