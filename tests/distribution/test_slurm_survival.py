"""preempt-requeue on a real Slurm: preempted, at its time limit, and with a node that goes down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from distribution.slurm_cluster import Job
    from distribution.slurm_site import Site

pytest_plugins = ["distribution.slurm_cluster", "distribution.slurm_site"]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.subject("slurm"),
    pytest.mark.modules,
    pytest.mark.slow,
]

RUN = (
    *("device=cpu", "algo.learning_starts=400", "algo.batch_size=32", "model.hidden=[32]"),
    *("logger=csv", "checkpoint_every=1000000", "dist.exchange_every=10"),
)
INTERRUPTED = ("preempted", "limited")
HALF_A_NODE = ("--set", "cpus-per-task=1")  # for two ranks on each

# Pendulum that idles until its job is requeued, once its rank has learned for 100 steps: the run
# that nobody interrupts has all steps to take again.
SLOWED = """
import os
import time

import gymnasium
from gymnasium.envs.classic_control import PendulumEnv


class Slowed(PendulumEnv):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps > 300 and "SLURM_RESTART_COUNT" not in os.environ:
            time.sleep(0.3)
        return super().step(action)


gymnasium.register("Slowed-v0", Slowed, max_episode_steps=200)
"""


def start(site: Site, name: str, *words: str, options: tuple[str, ...] = ()) -> int:
    """A run that ends once it was interrupted; two ranks end at a multiple of EVERY, where their
    episodes do."""
    run = site.cluster.home / name / "run"
    words = (*RUN, f"hydra.run.dir={name}/run", *words)
    return site.start("preempt-requeue", *words, options=options, TEST_RUN=str(run))


def newest(site: Site, name: str) -> int:
    """The step of a run's newest checkpoint; 0 if it has none."""
    folder = site.cluster.home / name / "run" / "checkpoints"
    return max((int(path.name[5:]) for path in folder.glob("step_*")), default=0)


def episodes(site: Site, name: str) -> int:
    metrics = site.cluster.home / name / "run" / "metrics.csv"
    return metrics.read_text().count("\n") - 1 if metrics.exists() else 0


def weights(run: Path, step: int) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    saved = torch.load(run / f"checkpoints/step_{step}/trainer.pt", weights_only=True)
    return saved["algorithm"]


def differing(a: Any, b: Any, where: str = "") -> list[str]:
    """Paths of the leaves in which two nested states differ, to the bit."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        return [path for key in a for path in differing(a[key], b[key], f"{where}/{key}")]
    same = a.equal(b) if hasattr(a, "equal") else a == b
    return [] if same else [where]


def continued(site: Site, number: int, name: str, signal: str) -> Job:
    """It was told, saved, was requeued, and went on to its end."""
    requeued = "goes on when Slurm starts it again"
    site.wait(lambda: requeued in site.log(number) or site.has_ended(number), "the requeue")
    told = re.search(rf"{signal}: stopped at step ([\d,]+), saved", site.log(number))
    assert told, site.log(number)
    step = int(told[1].replace(",", ""))
    job = site.succeed(number)
    _, again, second = job.log.partition(f"[slurm] job {number} was requeued (restart 1)")
    assert again, job.log
    assert re.search(rf"continues \S*step_{step},", second), job.log
    return job


@pytest.fixture(scope="module")
def limited(site: Site) -> int:
    """Told between 75 and 135 s before its end: the ranks have begun by then, on a slow machine,
    too, and there is time to save."""
    options = ("--nodes", "1", "--time", "4", "--set", "signal=USR1@75", "--set", "nodelist=gear1")
    options = (*options, *HALF_A_NODE)
    (site.cluster.home / "slowed.py").write_text(SLOWED)
    return start(site, "limited", "env.id=slowed:Slowed-v0", options=options)


@pytest.fixture(scope="module", autouse=True)
def started(limited: int) -> None:
    """The slow one first."""


def test_preempted_by_a_higher_partition(site: Site) -> None:
    options = ("--nodes", "1", "--set", "partition=spare", "--set", "nodelist=gear2")
    number = start(site, "preempted", options=options)
    site.wait(lambda: episodes(site, "preempted") >= 2, "two episodes")
    urgent = site.cluster.start("--exclusive", "--nodelist=gear2", "--wrap", "true")
    continued(site, number, "preempted", "SIGTERM")
    assert site.state(urgent) == "COMPLETED"


def test_a_node_that_goes_down(site: Site) -> None:
    """Slurm ends the job with a sentence, starts it again, and it goes on from a checkpoint."""
    number = start(site, "down", "checkpoint_every=400", options=HALF_A_NODE)
    site.wait(lambda: newest(site, "down"), "a checkpoint")
    scontrol = ("scontrol", "update", "nodename=gear2")
    site.cluster.run(*scontrol, "state=down", "reason=test")
    try:
        site.wait(lambda: site.state(number) == "PENDING", "the requeue")
        step = newest(site, "down")
    finally:
        site.cluster.run(*scontrol, "state=resume")
    job = site.succeed(number)
    first, again, second = job.log.partition(f"[slurm] job {number} was requeued (restart 1)")
    assert again, job.log
    assert re.search(r"DUE TO NODE FAILURE", first), job.log
    assert re.search(rf"continues \S*step_{step},", second), job.log


def test_at_its_time_limit(site: Site, limited: int) -> None:
    continued(site, limited, "limited", "SIGUSR1")


@pytest.fixture(scope="module")
def whole(site: Site) -> Path:
    """The run that nobody interrupted, with checkpoints of the steps at which the others ended."""
    first, last = sorted(newest(site, name) for name in INTERRUPTED)
    words = (f"total_steps={last}", f"checkpoint_every={first}", f"keep_checkpoints={last}")
    site.succeed(site.start("1node", *RUN, *words, "hydra.run.dir=whole/run"))
    return site.cluster.home / "whole" / "run"


@pytest.mark.parametrize("name", INTERRUPTED)
def test_weights_are_those_of_an_uninterrupted_run(site: Site, whole: Path, name: str) -> None:
    """To the bit."""
    step = newest(site, name)
    assert differing(weights(site.cluster.home / name / "run", step), weights(whole, step)) == []
