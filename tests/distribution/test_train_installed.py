"""Ranks of DeepSpeed and of Horovod train as one process does, in an installation that has both."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("hydra")
pytest.importorskip("gymnasium")

import torch
from train.composed import compose
from train.launched import TRAIN, learned_in
from train.saved_data import write_pendulum
from train.strategy_worker import MIDDLE
from train.strategy_worker import train as take_steps
from train.test_dt_ranks import RUN, data_in
from train.test_dt_ranks import check_same as check_same_run
from train.test_lost_ranks import ENDLESS, wait_until_they_learn
from train.test_strategies import OPTIM, STAGE, check_same
from warm_mpirun import warm_ranks
from warm_python import Warm

from distribution.project import REPOSITORY
from gear.train.app import main
from gear.train.config import read
from gear.train.ranks import Ranks
from gear.train.record import metrics

if TYPE_CHECKING:
    from distribution.conftest import Installation

pytestmark = pytest.mark.mpi
by_night = pytest.mark.nightly  # of each commit: what tells of a rank that is gone
WORKER = str(REPOSITORY / "tests" / "train" / "libraries_worker.py")
IMPORTED = ("deepspeed", "horovod.torch")
SIZE = 2
SIZES = (1, SIZE, 4)  # numbers of ranks that train the decision transformer
ZERO = "dist.config.zero_optimization"
OFFLOAD = [f"{ZERO}.offload_{what}.device=cpu" for what in ("optimizer", "param")]
BF16 = "dist.config.bf16.enabled=true"
# Of the decision transformer, with a row of the metrics every 10 updates.
CURVE = (*RUN, "total_steps=30", "eval_every=30")
# By name, what is changed of dist=deepspeed. Of `-rest`, the first steps were taken by one process.
EXACT = {
    "zero0": [f"{STAGE}=0"],
    "zero1": [f"{STAGE}=1"],
    "zero2": [f"{STAGE}=2"],
    "zero3": [f"{STAGE}=3"],
    "zero2-rest": [f"{STAGE}=2"],
    "zero3-rest": [f"{STAGE}=3"],
    "offload": [f"{STAGE}=3", *OFFLOAD],
    "offload-rest": [f"{STAGE}=2", OFFLOAD[0]],
}
NEAR = {"bf16": [f"{STAGE}=2", BF16], "bf16-rest": [f"{STAGE}=3", BF16]}


def transformers(size: int) -> list[list[str]]:
    """Decision transformers that so many ranks train, each in a folder of its own."""
    run = (*CURVE, "algo.packed=true", f"algo.batch_size={8 // size}")
    sweep = ("-m", f"{STAGE}=1,2,3", f"hydra.sweep.subdir=zero${{{STAGE}}}-{size}")
    return [
        ["gear", *sweep, "hydra.sweep.dir=.", *run, "dist=deepspeed"],
        ["gear", *run, "dist=horovod", f"hydra.run.dir=horovod-{size}"],
    ]


def jobs() -> list[list[str]]:
    """What the ranks do, in one process each."""
    zero = [f"{n}={','.join(['dist=deepspeed', *o])}" for n, o in {**EXACT, **NEAR}.items()]
    hvd = ["hvd=seed=0", "hvd-rest=seed=0", "hvd-near=dist.compression=fp16"]
    optim = ",".join(OPTIM)
    return [
        ["refused", "dist=deepspeed", f"+{ZERO}.overlap_comm=perhaps"],
        ["steps", optim, *zero],
        ["steps", f"{optim},dist=horovod", *hvd],
    ]


@contextmanager
def ranks_of(
    installation: Installation, size: int, folder: Path, *words: str
) -> Iterator[list[Warm]]:
    """Ranks of mpirun, by the installation's Python, which has imported both libraries."""
    with pytest.MonkeyPatch.context() as patch:
        # Ranks that wait leave their core to those that work.
        patch.setenv("OMPI_MCA_mpi_yield_when_idle", "1")
        python = str(installation.python)
        with warm_ranks(size, folder, *words, python=python, imported=IMPORTED) as ranks:
            yield ranks


def check_ended(rank: Warm) -> None:
    _, stderr = rank.communicate(timeout=1200)
    assert rank.returncode == 0, stderr
    assert "Warning" not in stderr


@pytest.fixture(scope="module")
def alone() -> tuple[Any, ...]:
    """Of one process: losses, the state in the middle and the last one."""
    return take_steps(Ranks.single(), read(compose(*OPTIM)))


@pytest.fixture(scope="module")
def trained(
    installation: Installation, alone: tuple[Any, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where the ranks have left what they did."""
    folder = data_in(tmp_path_factory.mktemp("trained"))
    torch.save(alone[1], folder / "middle.pt")
    for size in SIZES[1:]:
        work = [*(jobs() if size == SIZE else []), *transformers(size)]
        with ranks_of(installation, size, folder, WORKER, str(folder), json.dumps(work)) as ranks:
            for rank in ranks:
                check_ended(rank)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = (WORKER, str(folder), json.dumps(transformers(1)))
    python = str(installation.python)
    check_ended(Warm(*words, cwd=folder, env=environment, python=python, imported=IMPORTED))
    return folder


@by_night
def test_deepspeed_takes_the_steps_of_one_process(trained: Path, alone: tuple[Any, ...]) -> None:
    """And one process those of the rest of what DeepSpeed began."""
    for name in EXACT:
        found = torch.load(trained / f"{name}.pt")
        check_same(found, alone)
        assert len(found[0]) == (MIDDLE if name.endswith("-rest") else 2 * MIDDLE)
        check_same(take_steps(Ranks.single(), read(compose(*OPTIM)), found[1]), alone)


@by_night
def test_bfloat16_of_deepspeed_keeps_weights_in_float32(
    trained: Path, alone: tuple[Any, ...]
) -> None:
    for name in NEAR:
        losses, _, last = torch.load(trained / f"{name}.pt")
        assert losses == pytest.approx(alone[0][-len(losses) :], abs=0.05)
        assert {tensor.dtype for tensor in last["model"].values()} == {torch.float32}


@by_night
def test_what_deepspeed_refuses_is_one_sentence(trained: Path) -> None:
    for rank in range(SIZE):
        said = (trained / f"refused-{rank}").read_text()
        assert said.startswith("[train] DeepSpeed refuses dist.config: ")
        assert "overlap_comm" in said
        assert "\n" not in said


@by_night
def test_horovod_takes_the_steps_of_one_process(trained: Path, alone: tuple[Any, ...]) -> None:
    for name in ("hvd", "hvd-rest"):
        check_same(torch.load(trained / f"{name}.pt"), alone)
    losses, _, _ = torch.load(trained / "hvd-near.pt")
    assert losses == pytest.approx(alone[0], abs=0.01)
    assert losses != pytest.approx(alone[0], abs=1e-7)


@by_night
def test_decision_transformer_has_the_losses_of_one_process(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data_in(tmp_path))
    monkeypatch.setattr(metrics, "UPDATES_A_ROW", 10)
    assert main([*CURVE, "algo.batch_size=8", "hydra.run.dir=run"]) == 0
    expected = learned_in(tmp_path / "run")
    assert len(expected[0]) == 4  # three losses and an evaluation
    for name in ("zero1", "zero2", "zero3", "horovod"):
        for size in SIZES:
            check_same_run(learned_in(trained / f"{name}-{size}"), expected)


def lost(
    installation: Installation, folder: Path, dist: str, signum: int, timeout_s: int
) -> tuple[int, str]:
    """(pid of rank 1, which got the signal while both learned; the words of rank 0, which ends)."""
    write_pendulum(folder / "replay")
    words = (*TRAIN, f"dist={dist}", *ENDLESS, f"dist.timeout_s={timeout_s}")
    with ranks_of(installation, SIZE, folder, *words) as (first, second):
        wait_until_they_learn(folder, first, second)
        second.send_signal(signum)
        _, said = first.communicate(timeout=240)
        assert first.returncode == 2, said
        return second.pid, said


def test_killed_rank_of_deepspeed_is_named_at_once(
    installation: Installation, tmp_path: Path
) -> None:
    """The time-out is an hour, and nobody waits for that."""
    pid, said = lost(installation, tmp_path, "deepspeed", signal.SIGKILL, 3600)
    assert re.fullmatch(rf"gear: \[transport\] rank 1 \(pid {pid}[^)]*\) has ended: [^\n]+\n", said)


@by_night
@pytest.mark.parametrize("dist", ["deepspeed", "horovod"])
def test_rank_that_hangs_is_named_after_the_time_out(
    installation: Installation, tmp_path: Path, dist: str
) -> None:
    pid, said = lost(installation, tmp_path, dist, signal.SIGSTOP, 25)
    # By a call of the library's or by one of GEAR's, whichever it was stopped before.
    who = rf"rank 1( \(pid {pid}[^)]*\))? did not take part( in \w+)?"
    within = "(25|30)" if dist == "horovod" else r"\d+"
    assert re.fullmatch(rf"gear: \[transport\] {who} within {within} s: [^\n]+\n", said), said
