"""`dist.learners`: the first ranks learn, the others act and store, and all share one buffer."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import gear
from gear.train.record.checkpoint import checkpoints
from gear.train.strategies import make_strategy

pytestmark = pytest.mark.subject("trainer")

ROLES = (
    *("dist=ddp", "dist.learners=1", "dist.locality=off", "algo.learning_starts=250"),
    *("algo.batch_size=16", "model.hidden=[16]", "logger=csv", "hydra.run.dir=run"),
)


class OneOf:
    """Ranks of which the others have nothing to give: their part of every mean is zero."""

    def __init__(self, size: int) -> None:
        self.size = self.averaging = size
        self.seen: list[torch.Tensor] = []

    def times_of_first(self, few: int) -> float:
        return self.size / few

    def average(self, tensors) -> None:
        self.seen = [tensor.clone() for tensor in tensors]
        torch._foreach_div_(list(tensors), self.size)


@pytest.mark.parametrize("learners", [1, 3])
def test_the_gradient_is_the_learners_mean(configure, learners):
    """One of 3 ranks has a loss: of those that learn it is a share, those that act are none."""
    config = configure("dist=ddp", f"dist.learners={learners}", "dist.locality=off")
    alone = configure()
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    other = copy.deepcopy(net)
    batch = torch.randn(8, 4)
    ranks = OneOf(3)
    ours = make_strategy(config.dist, ranks).prepare(net, config.optim)
    theirs = make_strategy(alone.dist, OneOf(1)).prepare(other, alone.optim)
    ours.descend(net(batch).square().mean())
    theirs.descend(other(batch).square().mean())
    for mine, expected in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad / learners)


def test_a_rank_that_stands_by_gives_nothing_and_keeps_its_weights(configure):
    config = configure("dist=ddp", "dist.learners=1", "dist.locality=off")
    net = nn.Linear(4, 2)
    before = net.weight.clone()
    ranks = OneOf(2)
    trained = make_strategy(config.dist, ranks).prepare(net, config.optim)
    trained.stand_by()
    assert [tuple(tensor.shape) for tensor in ranks.seen] == [(2, 4), (2,)]
    assert not any(tensor.any() for tensor in ranks.seen)
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("dist.learners=3",), "dist.learners=3 is not possible: give 1 to 2, the number"),
        (("dist=fsdp2", "dist.learners=1"), "dist.learners=1 is not possible: give null with"),
        (("dist.learners=1", "algo.policy_every=2"), "algo.policy_every=2 is not possible: give 1"),
        (("dist.learners=1",), "dist.locality=first is not possible: give off with dist.lear"),
    ],
)
def test_refused(configure, overrides, sentence):
    with pytest.raises(gear.InvalidArgument, match=f".*{sentence}") as refused:
        configure("dist=ddp", *overrides).check_ranks(2)
    assert str(refused.value).startswith("[train] ")


def test_as_many_learners_as_ranks_are_no_roles(configure):
    config = configure("dist=ddp", "dist.learners=2")
    config.check_ranks(2)
    assert config.dist.num_learners(2) == 2


@pytest.mark.slow
@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_one_learns_and_one_acts(launch, tmp_path, replay):
    """Both store; the networks of the one that acts are those of the other; and continued from the
    middle the run is bit-equal."""
    words = (*ROLES, f"replay={replay}", "total_steps=500", "checkpoint_every=200")
    words += ("keep_checkpoints=9",)
    processes = launch.by_hand(2, *words)
    streams = launch.finish(*processes)
    assert [process.returncode for process in processes] == [0, 0], streams
    shown = " ".join(streams[0][0].split())
    assert "1 learn, 1 only act" in shown
    assert "16 a rank, 16 in all" in shown
    whole = checkpoints(tmp_path / "run")[-1]
    first, second = (whole.state(rank, 2) for rank in range(2))
    assert first["networks"] == second["networks"]
    assert first["counters"]["updates"] == second["counters"]["updates"] == 126
    with gear.ReplayBuffer.load(whole.path / "replay") as buffer:
        assert len(buffer) == 500

    older = Path("parts/checkpoints/step_400")
    shutil.copytree(tmp_path / "run" / "checkpoints" / "step_400", tmp_path / older)
    shutil.copy(tmp_path / "run" / "run_id", tmp_path / "parts")
    processes = launch.by_hand(2, "dist.learners=1", "dist.locality=off", f"checkpoint={older}")
    streams = launch.finish(*processes)
    assert [process.returncode for process in processes] == [0, 0], streams
    parts = checkpoints(tmp_path / "parts")[-1]
    again = [parts.state(rank, 2) for rank in range(2)]
    assert [state["networks"] for state in again] == [first["networks"]] * 2
    for file in (path for path in (whole.path / "replay").rglob("*") if path.is_file()):
        assert file.read_bytes() == (parts.path / file.relative_to(whole.path)).read_bytes()
