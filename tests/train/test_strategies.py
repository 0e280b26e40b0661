"""Every strategy trains as one process does: losses, states, and what it refuses.

Most of DeepSpeed and all runs of Horovod are in distribution/test_train_installed.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from ports import fresh_port
from train.composed import compose
from train.launched import Launch
from train.strategy_worker import MIDDLE, Transformer, train
from warm_mpirun import warm_ranks

import gear
from gear.train.config import read
from gear.train.ranks import Ranks
from gear.train.ranks import horovod as horovod_ranks
from gear.train.ranks.meeting import start_ranks
from gear.train.strategies import deepspeed as by_deepspeed
from gear.train.strategies import make_strategy

pytestmark = pytest.mark.subject("trainer")

OPTIM = ("optim=adamw", "optim.weight_decay=0.1", "optim.lr=0.01")
STAGE = "dist.config.zero_optimization.stage"
WORKER = str(Path(__file__).with_name("strategy_worker.py"))


@pytest.fixture(scope="module")
def alone():
    """(losses, middle state, last state) of one process, which all others are held against."""
    return train(Ranks.single(), read(compose(*OPTIM)))


def by_ranks(folder, size, alone, *runs, name="ddp"):
    """name -> what `train` returned, of runs by `size` ranks that are processes."""
    torch.save(alone[1], folder / "middle.pt")
    launch = Launch(folder)
    meeting = [f"dist={name}", f"world_size={size}", f"dist.master_port={fresh_port()}"]
    shared = ",".join([*OPTIM, *meeting])
    try:
        ranks = [
            launch.start(sys.executable, WORKER, str(folder), f"{shared},rank={rank}", *runs)
            for rank in range(size)
        ]
        for process, (_, stderr) in zip(ranks, launch.finish(*ranks), strict=True):
            assert process.returncode == 0, stderr
            assert "Warning" not in stderr
    finally:
        launch.close()
    names = [run.split("=")[0] for run in runs]
    return {name: torch.load(folder / f"{name}.pt") for name in names}


def check_same(found, alone, *, tolerance=1e-5):
    """The losses, and the state that they led to."""
    losses, _, last = found
    assert losses == pytest.approx(alone[0][-len(losses) :], abs=tolerance)
    check_state(last, alone[2], tolerance)


def check_state(state, expected, tolerance=1e-5):
    assert state["model"].keys() == expected["model"].keys()
    for name, value in expected["model"].items():
        torch.testing.assert_close(state["model"][name], value, atol=tolerance, rtol=0)
    assert state["optimizer"].keys() == expected["optimizer"].keys()
    for name, values in expected["optimizer"].items():
        assert state["optimizer"][name].keys() == values.keys()
        for key, value in values.items():
            found = state["optimizer"][name][key]
            torch.testing.assert_close(found, value, atol=tolerance, rtol=0)


@pytest.mark.slow
def test_two_ranks_train_as_one(tmp_path, alone):
    """From the start, and from the middle of what one rank did; rest of one rank from theirs."""
    names = ("ddp", "fsdp2")
    runs = [f"{name}{rest}=dist={name}" for name in names for rest in ("", "-rest")]
    for name, found in by_ranks(tmp_path, 2, alone, *runs).items():
        check_same(found, alone)
        assert len(found[0]) == (MIDDLE if name.endswith("-rest") else 2 * MIDDLE)
        check_same(train(Ranks.single(), read(compose(*OPTIM)), found[1]), alone)


@pytest.mark.slow
def test_four_ranks_train_as_one(tmp_path, alone):
    runs = [f"{name}-rest=dist={name}" for name in ("ddp", "fsdp2")]
    for found in by_ranks(tmp_path, 4, alone, "ddp=dist=ddp", "fsdp2=dist=fsdp2", *runs).values():
        check_same(found, alone)


@pytest.mark.slow
@pytest.mark.gear_mpi
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_of_gear_mpi_train_as_those_of_gloo(tmp_path, alone, size):
    names = ("ddp", "fsdp2")
    runs = [
        f"{name}-{backend}=dist={name},dist.backend={backend}"
        for name in names
        for backend in ("gloo", "gear_mpi")
    ]
    with warm_ranks(size, tmp_path, WORKER, str(tmp_path), ",".join(OPTIM), *runs) as ranks:
        for rank in ranks:
            _, stderr = rank.communicate(timeout=240)
            assert rank.returncode == 0, stderr
            assert "Warning" not in stderr
    for name in names:
        gloo, mpi = (torch.load(tmp_path / f"{name}-{b}.pt") for b in ("gloo", "gear_mpi"))
        assert mpi[0] == pytest.approx(gloo[0], abs=1e-6)
        check_same(mpi, alone)


@pytest.mark.slow
@pytest.mark.frameworks
def test_four_ranks_of_deepspeed_train_as_one(tmp_path, alone):
    """Shares that the weights' sizes do not divide into."""
    names = ["zero2-rest", "zero3"]
    runs = [f"{name}=dist=deepspeed,{STAGE}={name[4]}" for name in names]
    for found in by_ranks(tmp_path, 4, alone, *runs, name="deepspeed").values():
        check_same(found, alone)
        check_same(train(Ranks.single(), read(compose(*OPTIM)), found[1]), alone)


def test_deepspeed_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setattr(by_deepspeed, "find_spec", lambda name: None)
    config = read(compose("dist=deepspeed"))
    message = r"^\[train\] dist=deepspeed: DeepSpeed is not installed: .* use dist=fsdp2, .*$"
    with pytest.raises(gear.InvalidArgument, match=message):
        make_strategy(config.dist, Ranks.single()).prepare(
            Transformer(), config.optim, overlap=True
        )


def test_horovod_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setattr(horovod_ranks, "find_spec", lambda name: None)
    message = r"^\[train\] dist=horovod: Horovod is not installed: .*, or use dist=ddp$"
    with pytest.raises(gear.InvalidArgument, match=message):
        start_ranks(read(compose("dist=horovod")))


def test_horovod_that_the_launcher_does_not_start_is_one_sentence(monkeypatch):
    """Ranks by hand, say: each would train by itself."""
    fake = ModuleType("horovod.torch")
    fake.init, fake.size = lambda: None, lambda: 1
    monkeypatch.setitem(sys.modules, "horovod", ModuleType("horovod"))
    monkeypatch.setitem(sys.modules, "horovod.torch", fake)
    monkeypatch.setattr(sys.modules["horovod"], "torch", fake, raising=False)
    monkeypatch.setattr(horovod_ranks, "find_spec", lambda name: name)
    message = r"^\[train\] dist=horovod: Horovod sees 1 rank\(s\) and world_size= says 2: .*=pmi2 "
    with pytest.raises(gear.InvalidArgument, match=message):
        start_ranks(read(compose("dist=horovod", "rank=0", "world_size=2")))


def alone_by(*overrides):
    config = read(compose(*OPTIM, *overrides))
    with Ranks.single() as ranks:
        return train(ranks, config)


def test_one_rank_of_fsdp2(alone):
    found = alone_by("dist=fsdp2", "dist.reshard_after_forward=false")
    check_same(found, alone)
    check_state(found[1], alone[1])  # of the middle, whatever came later


def test_bfloat16_of_fsdp2_keeps_weights_and_optimiser_in_float32(alone):
    losses, _, last = alone_by("dist=fsdp2", "dist.param_dtype=bfloat16")
    assert losses == pytest.approx(alone[0], abs=0.05)
    assert losses != pytest.approx(alone[0], abs=1e-6)
    tensors = [
        *last["model"].values(),
        *(t for s in last["optimizer"].values() for t in s.values()),
    ]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}


@pytest.mark.parametrize("dist", ["ddp", "fsdp2"])
def test_an_error_of_the_model_itself_passes(dist):
    """It is no transport's, and its own words and place are what the user needs."""
    config = read(compose(f"dist={dist}"))
    with Ranks.single() as ranks:
        trained = make_strategy(config.dist, ranks).prepare(
            Transformer(), config.optim, overlap=True
        )
        trained.share()
        with pytest.raises(IndexError, match="out of range"):
            trained.model(torch.full((1, 4), 99))
        with pytest.raises(RuntimeError, match="scalar outputs"):
            trained.descend(trained.model(torch.zeros(1, 4, dtype=torch.int64)))


@pytest.mark.parametrize("dist", ["fsdp2", "deepspeed"])
def test_several_losses_are_refused(dist):
    strategy = make_strategy(read(compose(f"dist={dist}")).dist, Ranks.single())
    message = rf"^\[train\] dist={dist} trains models with one loss, as algo=dt has, .*dist=ddp$"
    with pytest.raises(gear.InvalidArgument, match=message):
        strategy.prepare(Transformer(), read(compose()).optim)
