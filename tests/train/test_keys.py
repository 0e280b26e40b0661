"""Every key of the configuration reaches what it is for: one short run each."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from train.composed import compose

import gear
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.ranks import Ranks
from gear.train.record.start_table import start_table
from gear.train.tasks.replay import annealed_beta

SHORT = ("algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[4]", "total_steps=30")


@pytest.fixture
def given(monkeypatch):
    """The arguments of the run's buffer and loader, as GEAR got them."""
    seen = {}
    make, loader = gear.ReplayBuffer.__init__, gear.ReplayBuffer.loader

    def spy_buffer(self, *args, **kwargs):
        seen["buffer"] = kwargs
        make(self, *args, **kwargs)

    def spy_loader(self, *args, **kwargs):
        seen["loader"] = kwargs
        return loader(self, *args, **kwargs)

    monkeypatch.setattr(gear.ReplayBuffer, "__init__", spy_buffer)
    monkeypatch.setattr(gear.ReplayBuffer, "loader", spy_loader)
    return seen


@pytest.fixture(autouse=True)
def torch_as_it_was():
    yield
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)


def run(*overrides):
    """A learner after 30 steps; the first 19 teach nothing."""
    learner = Learner(read(compose(*SHORT, *overrides)))
    while learner.counters.env_steps < 30:
        learner.step()
    return learner


@pytest.mark.parametrize(
    ("overrides", "updates"),
    [
        ((), 11),
        (("algo.updates=3",), 33),
        (("algo.train_every=5",), 3),
        (("algo.train_every=5", "algo.updates=2"), 6),
        (("algo.learning_starts=25",), 6),
        (("env.num_envs=4",), 16),  # 32 steps by fours, four updates after each from the 20th on
        (("env.num_envs=4", "algo.train_every=8", "algo.updates=3"), 6),
    ],
)
def test_updates(overrides, updates):
    assert run(*overrides).counters.updates == updates


@pytest.mark.parametrize("tier", ["host", "shared"])
def test_tier(tier, given):
    learner = run(f"replay.tier={tier}")
    assert learner.buffer.tier == tier
    assert len(learner.buffer) == 30
    learner.close()


def test_tier_that_this_build_lacks():
    if gear._core.build_info()["cuda"]:
        pytest.skip("this build has CUDA")
    with pytest.raises(gear.InvalidArgument, match=r"\[memory\].*without CUDA"):
        run("replay.tier=pinned")


@pytest.mark.parametrize("page_steps", [1, 7, 64])
def test_page_steps_and_capacity(page_steps):
    learner = run(f"replay.page_steps={page_steps}", "replay.capacity=128")
    assert learner.buffer.page_steps == page_steps
    assert 128 <= learner.buffer.capacity < 128 + page_steps  # whole pages
    assert learner.counters.updates == 11


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_prefetch(prefetch, given):
    learner = run(f"replay.prefetch={prefetch}")
    assert given["loader"]["prefetch"] == prefetch
    assert learner.counters.updates == 11


def test_alpha_decides_how_unequal_draws_are(given):
    drawn = {}
    for alpha in (0.0, 2.0):
        learner = run("replay=prioritized", f"replay.alpha={alpha}", "algo.n_step=1")
        assert given["loader"]["sampler"] == gear.Weighted(alpha=alpha, beta=0.4)
        batches = [next(learner.loader) for _ in range(4)]  # the first ones were ready before
        drawn[alpha] = np.ptp(batches[-1].probabilities.numpy())
    assert drawn[0.0] == pytest.approx(0, abs=1e-6)
    assert drawn[2.0] > 0.01


def test_beta_rises_over_beta_steps():
    replay = run("replay=prioritized", "replay.beta=0.2", "replay.beta_steps=50").config.replay
    found = [annealed_beta(replay, step) for step in (0, 25, 50, 1000)]
    assert found == pytest.approx([0.2, 0.6, 1.0, 1.0])


@pytest.mark.parametrize(("beta_steps", "beta"), [(60, 0.7), (30, 1.0)])
def test_loader_has_the_beta_of_the_step(beta_steps, beta):
    learner = run("replay=prioritized", "replay.beta=0.4", f"replay.beta_steps={beta_steps}")
    assert learner.loader.beta == pytest.approx(beta)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads):
    run(f"threads={threads}")
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("deterministic", ["true", "false"])
def test_deterministic(deterministic):
    run(f"deterministic={deterministic}")
    assert torch.are_deterministic_algorithms_enabled() == (deterministic == "true")


def test_reward_clip():
    """Of what is learned from; what is reported is as the simulator gave it."""
    learner = run("env.reward_clip=0.5", "algo.n_step=1")
    assert next(learner.loader)["reward"].min() == -0.5
    assert learner.acting.playing[0].episode_return < -15.0


@pytest.mark.parametrize(
    ("transport", "backend", "nodes", "by_nccl"),
    [
        ("auto", "nccl", 2, True),
        ("auto", "nccl", 1, False),  # ranks of a node read each other's memory
        ("auto", "gloo", 2, False),
        ("nccl", "nccl", 1, True),
        ("host", "nccl", 2, False),
    ],
)
def test_dist_transport(transport, backend, nodes, by_nccl):
    ranks = SimpleNamespace(backend=backend, group=SimpleNamespace(num_nodes=nodes))
    assert Ranks.moves_by_nccl(ranks, transport) is by_nccl


@pytest.mark.parametrize(
    ("below", "said"), [(0, ""), (2048, "; owners pack runs below 2,048 bytes")]
)
def test_the_start_table_says_what_moves_batches(below, said, monkeypatch):
    monkeypatch.setattr(gear.Loader, "stats", lambda self: {"pack_below": below})
    with closing(Learner(read(compose(*SHORT, "dist=ddp")))) as learner:
        group = SimpleNamespace(
            nodes=[0, 1],
            num_nodes=2,
            launcher="srun",
            transport_name="verbs",
            transport_reason="every rank has an RDMA port",
        )
        learner.ranks = SimpleNamespace(
            size=2,
            averaging=2,
            job=None,
            group=group,
            backend="gloo",
            device_name=lambda: "cpu",
            exchange=lambda value: [value, value],
        )
        names, values = (list(column.cells) for column in start_table(learner, "").columns)
    told = dict(zip(names, values, strict=True))["transport"]
    words = "batches moved by verbs, locality first: every rank has an RDMA port"
    assert told == words + said
