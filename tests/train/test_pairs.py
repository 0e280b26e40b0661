"""Values that are allowed each and cannot work together are refused before anything is built."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from train.composed import compose

import gear
from gear.train.app import CONF, main
from gear.train.config import check_pairs, read
from gear.train.tasks import nstep

DT = ("data=saved", "data.path=somewhere")
BC = (*DT, "algo=bc", "model=mlp")
ZERO = "dist.config.zero_optimization"

# Overrides, ranks, the key that is refused with its value, what is allowed, and overrides that mend
# it: the nearest values, where there are such.
PAIRS = {
    "open episodes and pages": (
        ("env.num_envs=64", "replay.capacity=500", "algo.batch_size=32"),
        *(1, "replay.capacity=500", "at least 1184, since each open episode of env.num_envs=64"),
        ("replay.capacity=1169",),
    ),
    "one environment and one page": (
        ("replay.capacity=500", "replay.page_steps=500"),
        *(1, "replay.capacity=500", "at least 1500, since each open .* replay.page_steps=500"),
        ("replay.capacity=1001",),
    ),
    "a transition and capacity": (
        ("algo.n_step=300", "replay.capacity=256"),
        *(1, "replay.capacity=256", "at least 336, .* a transition of algo.n_step=300"),
        ("replay.capacity=321",),
    ),
    "a batch and capacity": (
        ("algo.batch_size=300", "replay.capacity=256"),
        *(1, "algo.batch_size=300", "at most replay.capacity=256"),
        ("algo.batch_size=256",),
    ),
    "a transition and the first update": (
        ("algo.n_step=30", "algo.learning_starts=120", "env.num_envs=2"),
        *(2, "algo.learning_starts=120", "more than algo.n_step=30 times 2 ranks times env.num_"),
        ("algo.learning_starts=121",),
    ),
    "no update before the end": (
        ("total_steps=500", "algo.learning_starts=1000"),
        *(1, "total_steps=500", "at least algo.learning_starts=1000, before which nothing is"),
        ("total_steps=1000",),
    ),
    "no update before the end of ranks": (
        ("total_steps=996", "algo.learning_starts=1000", "env.num_envs=2"),
        *(2, "total_steps=996", "at least algo.learning_starts=1000"),
        ("total_steps=997",),
    ),
    "no update between start and end": (
        ("total_steps=1500", "algo.learning_starts=1100", "algo.train_every=1000"),
        *(1, "algo.train_every=1000", "fewer steps: each rank takes 1500 in total_steps=1500"),
        ("algo.train_every=700",),
    ),
    "gradients again, of no blocks": (
        (*BC, "algo.recompute=true"),
        *(1, "algo.recompute=true", "false with model=mlp"),
        ("algo.recompute=false",),
    ),
    "half precision of an MLP": (
        (*BC, "algo.precision=bfloat16"),
        *(1, "algo.precision=bfloat16", "float32 with model=mlp"),
        ("algo.precision=float32",),
    ),
    "half gradients of several losses": (
        ("dist=horovod", "dist.compression=fp16"),
        *(2, "dist.compression=fp16", "none with algo=sac: it is for models with one loss"),
        ("dist.compression=none",),
    ),
    "NCCL from the host": (
        ("dist=ddp", "dist.transport=nccl"),
        *(2, "dist.transport=nccl", "auto or host with device=cpu"),
        ("device=cuda",),
    ),
    "weights moved out that are not shared out": (
        (*DT, "dist=deepspeed", f"{ZERO}.offload_param.device=cpu"),
        *(1, f"{ZERO}.offload_param.device=cpu", f"none, or {ZERO}.stage=3$"),
        (f"{ZERO}.stage=3",),
    ),
    "an optimiser moved out that is not shared out": (
        (*DT, "dist=deepspeed", f"{ZERO}.stage=0", f"{ZERO}.offload_optimizer.device=cpu"),
        *(1, f"{ZERO}.offload_optimizer.device=cpu", f"none, or {ZERO}.stage=1 or more"),
        (f"{ZERO}.stage=1",),
    ),
    "Weights & Biases without its writer": (
        ("logger=wandb", "logger.writers=[csv]"),
        *(1, r"logger.writers=\[csv\]", "a list with wandb for logger=wandb"),
        ("logger.writers=[csv,wandb]",),
    ),
    "learners and ranks": (
        ("dist=ddp", "dist.learners=3"),
        *(2, "dist.learners=3", "1 to 2, the number of ranks"),
        ("dist.learners=2",),
    ),
    "learners and locality": (
        ("dist=ddp", "dist.learners=1"),
        *(2, "dist.locality=first", "off with dist.learners=1 of 2 ranks"),
        ("dist.locality=off",),
    ),
    "learners and copies of the policy": (
        ("dist=ddp", "dist.learners=1", "dist.locality=off", "algo.policy_every=2"),
        *(2, "algo.policy_every=2", "1 with dist.learners"),
        ("algo.policy_every=1",),
    ),
    "saved data and what acts": (
        ("data.path=somewhere",),
        *(1, "data.path=somewhere", "null, as algo=sac learns from what it stores itself"),
        ("data.path=null",),
    ),
    "a model and an algorithm": (
        ("model=dt_1m",),
        *(1, "model.name=transformer", "mlp or cnn, which fits algo=sac"),
        DT,
    ),
    "heads and width": (
        (*DT, "model.width=128", "model.heads=3"),
        *(1, "model.heads=3", "a number that divides model.width=128"),
        ("model.heads=4",),
    ),
    "grids of no size": (
        ("data=puzzles", "data.least=9", "data.most=8"),
        *(1, "data.least=9", "at most data.most=8"),
        ("data.least=8",),
    ),
}


def checked(overrides: tuple[str, ...], num_ranks: int) -> None:
    check_pairs(read(compose(*overrides)), num_ranks)


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_are_refused_by_the_key_that_has_to_change(pair: str) -> None:
    overrides, num_ranks, given, allowed, _ = PAIRS[pair]
    message = rf"^\[train\] {given} is not possible: give {allowed}"
    with pytest.raises(gear.InvalidArgument, match=message) as refused:
        checked(overrides, num_ranks)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_allowed_is_taken(pair: str) -> None:
    overrides, num_ranks, _, _, mended = PAIRS[pair]
    checked((*overrides, *mended), num_ranks)


@pytest.mark.parametrize("dist", ["fsdp2", "deepspeed"])
def test_models_of_several_losses(dist: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=f"dist={dist} trains models with one loss"):
        checked((f"dist={dist}",), 2)
    checked((f"dist={dist}", *DT), 2)


@pytest.mark.parametrize("env", sorted(path.stem for path in (CONF / "env").glob("*.yaml")))
@pytest.mark.parametrize("num_ranks", [1, 4, 8])
def test_what_gear_comes_with_is_taken(env: str, num_ranks: int) -> None:
    dist = "single" if num_ranks == 1 else "ddp"
    checked((f"env={env}", f"dist={dist}"), num_ranks)


@pytest.mark.parametrize("data", ["saved", "puzzles", "puzzles_large"])
def test_what_does_not_act_needs_no_room_for_episodes(data: str) -> None:
    checked((f"data={data}", "data.path=somewhere", "env.num_envs=64", "total_steps=2"), 1)


def test_nothing_is_built_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gear.train.loop.make_environment", made)
    monkeypatch.setattr(gear.ReplayBuffer, "__init__", made)
    for pair in ("open episodes and pages", "no update before the end"):
        with pytest.raises(gear.InvalidArgument, match=PAIRS[pair][2]):
            main([*PAIRS[pair][0]])
    assert not list(tmp_path.glob("outputs/*/*"))


def test_ranks_that_share_out_a_saved_capacity_need_room_each() -> None:
    """A run of one rank that many continue: each has a part of the capacity."""
    words = ("env.num_envs=8", "replay.capacity=1000", "algo.batch_size=32")
    config = read(compose(*words, "algo.learning_starts=999"))
    check_pairs(config, 1)
    check_pairs(config.over(2, 1), 2)
    with pytest.raises(gear.InvalidArgument, match=r"replay\.capacity=125 .* at least 176, "):
        check_pairs(config.over(8, 1), 8)


# ---- the rules, held to what a run does ----


def updates_of_a_run(total: int, starts: int, every: int, envs: int, ranks: int) -> int:
    """Step by step, as `Acting.step` counts them."""
    steps = updates = 0
    while steps < total:
        steps += envs * ranks
        if steps >= starts:
            own = steps // ranks
            updates += sum((own - k) % every == 0 for k in range(envs))
    return updates


def test_who_learns_something_is_taken_and_nobody_else() -> None:
    base = read(compose("dist=ddp", "algo.n_step=1"))
    taken = refused = 0
    for total, starts, every, envs, ranks in itertools.product(
        (4, 7, 12, 30), (7, 9, 12, 29, 31), (1, 3, 8, 13, 40), (1, 2, 3), (1, 2)
    ):
        algo = replace(base.algo, learning_starts=starts, train_every=every)
        config = replace(base, total_steps=total, algo=algo, env=replace(base.env, num_envs=envs))
        if updates_of_a_run(total, starts, every, envs, ranks):
            check_pairs(config, ranks)
            taken += 1
        else:
            with pytest.raises(gear.InvalidArgument, match="is not possible"):
                check_pairs(config, ranks)
            refused += 1
    assert min(taken, refused) > 100


@pytest.mark.parametrize(
    ("envs", "page", "n_step"), [(1, 4, 1), (1, 4, 5), (3, 4, 1), (5, 4, 3), (4, 3, 7), (8, 1, 2)]
)
@pytest.mark.parametrize("ends", [0.0, 0.15])
def test_a_capacity_that_is_taken_always_has_something_to_draw(
    envs: int, page: int, n_step: int, ends: float
) -> None:
    """Environments that take their turns at random, with episodes that never end, and some that
    do."""
    pages = envs + envs * (n_step - 1) // page + 2
    words = ("algo.batch_size=1", f"env.num_envs={envs}", f"replay.page_steps={page}")
    small = (*words, f"algo.n_step={n_step}", "algo.learning_starts=500")
    checked((*small, f"replay.capacity={pages * page - page + 1}"), 1)
    with pytest.raises(gear.InvalidArgument, match=r"replay\.capacity"):
        checked((*small, f"replay.capacity={(pages - 1) * page}"), 1)

    chance = np.random.default_rng(1)
    columns = [gear.Column("obs"), gear.Column("action"), gear.Column("reward")]
    schema = gear.Schema([*columns, gear.Column("terminated", (), "bool")])
    row = {"obs": 0.0, "action": 0.0, "reward": 0.0, "terminated": False}
    with gear.ReplayBuffer(schema, pages * page, page_steps=page) as buffer:
        writers = [buffer.writer() for _ in range(envs)]
        outputs = nstep.outputs(n_step, 1)
        with buffer.loader(1, outputs=outputs, prefetch=0, framework="numpy") as loader:
            for step in range(600):
                writer = writers[chance.integers(envs)]
                writer.append(**row)
                if chance.random() < ends:
                    writer.end_episode(final={"obs": 0.0})
                if step > 300:
                    next(loader)
        for writer in writers:
            writer.close()


def test_fewer_pages_than_open_episodes_are_too_few() -> None:
    """What a run would end by, in its middle."""
    with gear.ReplayBuffer(gear.Schema([gear.Column("obs")]), 8, page_steps=4) as buffer:
        writers = [buffer.writer() for _ in range(3)]
        for writer in writers[:2]:
            writer.append(obs=0.0)
        with pytest.raises(gear.OutOfMemory, match="no page to evict"):
            writers[2].append(obs=0.0)
        for writer in writers:
            writer.close()
