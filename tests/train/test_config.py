"""Every value of the configuration is checked before anything is built."""

from __future__ import annotations

import copy
import dataclasses
from functools import cache

import pytest
import torch
import yaml
from omegaconf import OmegaConf, open_dict
from train.composed import compose

import gear
from gear.train.app import CONF
from gear.train.config import read, read_place
from gear.train.models.decision_transformer import DecisionTransformer

DQN = ("env=cartpole",)
DDP = ("dist=ddp",)
WEIGHTED = ("replay=prioritized",)
DT = ("data=saved", "data.path=somewhere")
BC = (*DT, "algo=bc", "model=mlp")
WANDB = ("logger=wandb",)

# Overrides that make every option of every group appear once.
RUNS = [
    *((f"env={path.stem}",) for path in sorted((CONF / "env").glob("*.yaml"))),
    ("replay=uniform", "optim=adamw", "logger=csv", "dist=ddp"),
    *((*DT, f"model={path.stem}") for path in sorted((CONF / "model").glob("dt_*.yaml"))),
    BC,
    ("env=hunt", "algo=iql", "model=mlp"),
    ("data=puzzles",),
    ("data=puzzles_large",),
    ("env=cartpole", "replay=prioritized", "logger=tensorboard"),
    ("logger=wandb", "dist=fsdp2"),
    ("dist=deepspeed",),
    ("dist=horovod",),
]


@cache
def composed(*overrides: str):
    return compose(*overrides)


def changed(overrides, key, value):
    """The configuration of `overrides` with another value, as the command line sets it."""
    cfg = copy.deepcopy(composed(*overrides))
    OmegaConf.update(cfg, key, value, merge=False)
    return cfg


# Each with what it may not hold.
MAPPINGS = {"env.kwargs": [None], "dist.config": {"optimizer": {}}}


def leaves(value, key=""):
    """Dotted keys of everything below; a mapping of arguments and a list are leaves."""
    if isinstance(value, dict) and key not in MAPPINGS:
        return [leaf for name in value for leaf in leaves(value[name], f"{key}.{name}".strip("."))]
    return [key]


def test_all_options_are_in_the_runs():
    chosen = [compose(*run, hydra=True).hydra.runtime.choices.items() for run in RUNS]
    used = {f"{group}/{option}" for choices in chosen for group, option in choices}
    options = {f"{path.parent.name}/{path.stem}" for path in CONF.glob("*/*.yaml")}
    assert options - used == set()


def every_leaf():
    """(overrides, key) of every leaf of conf/, each with the first run that has it."""
    found = {}
    for overrides in RUNS:
        for key in leaves(OmegaConf.to_container(composed(*overrides))):
            found.setdefault(key, overrides)
    assert {"seed", "algo.gamma", "algo.tau", "env.kwargs", "logger.writers"} <= set(found)
    return [(overrides, key) for key, overrides in found.items()]


def test_every_key_is_checked():
    """A value of no use is refused at every leaf of conf/: no key can be forgotten."""
    for overrides, key in every_leaf():
        cfg = changed(overrides, key, MAPPINGS.get(key, {"no": 1}))
        with pytest.raises(gear.InvalidArgument) as refused:
            read(cfg)
        assert f"[train] {key}=" in str(refused.value)
        assert "is not possible: give " in str(refused.value)


def test_every_key_is_asked_for():
    for overrides, key in every_leaf():
        cfg = copy.deepcopy(composed(*overrides))
        folder, _, last = key.rpartition(".")
        with open_dict(cfg):
            del (OmegaConf.select(cfg, folder) if folder else cfg)[last]
        with pytest.raises(gear.InvalidArgument) as refused:
            read(cfg)
        assert str(refused.value).startswith((f"[train] {key} is missing", f"[train] {key}=null"))


@pytest.mark.parametrize(
    "given",
    ["zero_optimization.stage=4", "zero_optimization=2", "train_batch_size=8", "scheduler={}"],
)
def test_json_of_deepspeed_is_checked_where_gear_knows_better(given):
    with pytest.raises(gear.InvalidArgument) as refused:
        read(compose("dist=deepspeed", f"++dist.config.{given}"))
    said = str(refused.value)
    assert said.startswith("[train] dist.config={")
    assert "zero_optimization.stage from 0 to 3" in said
    assert "train_batch_size (see algo.batch_size)" in said


@pytest.mark.parametrize(
    ("overrides", "given", "allowed"),
    [
        (DQN, "algo.target_every=0", "a whole number of at least 1"),
        ((), "algo.tau=5", "a number, 0 < tau <= 1"),
        ((), "algo.tau=-1", "a number, 0 < tau <= 1"),
        ((), "algo.tau=0", "a number, 0 < tau <= 1"),
        ((), "algo.target_entropy=low", "null or a number"),
        (DQN, "algo.max_grad_norm=0", "a number, max_grad_norm > 0"),
        (DQN, "algo.epsilon_final=7", "a number, 0 <= epsilon_final <= 1"),
        (DQN, "algo.epsilon_start=-0.1", "a number, 0 <= epsilon_start <= 1"),
        (DQN, "algo.epsilon_steps=-1", "a whole number of at least 0"),
        ((), "algo.n_step=0", "a whole number of at least 1"),
        ((), "algo.gamma=high", "a number, 0 < gamma <= 1"),
        ((), "algo.gamma=.nan", "a number, 0 < gamma <= 1"),
        ((), "algo.gamma=true", "a number, 0 < gamma <= 1"),
        ((), "algo.batch_size=1.5", "a whole number of at least 1"),
        ((), "algo.updates=0", "a whole number of at least 1"),
        ((), "algo.compile=max", "one of auto, off"),
        ((), "algo.policy_every=0", "a whole number of at least 1"),
        ((), "optim.betas=[0.9]", "two numbers, each 0 <= beta < 1"),
        ((), "optim.betas=[0.9,1.0]", "two numbers, each 0 <= beta < 1"),
        ((), "optim.eps=-1", "a number, eps > 0"),
        ((), "optim.lr=.inf", "a number, lr > 0"),
        ((), "optim.weight_decay=-1", "a number, weight_decay >= 0"),
        ((), "optim.name=sgd", "one of adam, adamw"),
        (WEIGHTED, "replay.alpha=-1", "a number, 0 <= alpha <= 4"),
        (WEIGHTED, "replay.beta=2", "a number, 0 <= beta <= 1"),
        (WEIGHTED, "replay.beta_steps=0", "a whole number of at least 1"),
        ((), "replay.page_steps=0", "a whole number from 1 to 32768"),
        ((), "replay.prefetch=-1", "a whole number from 0 to 1024"),
        ((), "replay.tier=disk", "one of host, shared, pinned, device"),
        ((), "replay.sampler=best", "one of uniform, weighted"),
        ((), "model.hidden=[0]", "a list of layer sizes"),
        ((), "model.hidden=64", "a list of layer sizes"),
        ((), "env.reward_clip=-1", "null or a number, reward_clip > 0"),
        ((), "env.frames=1", "true or false"),
        ((), "env.stack=0", "a whole number of at least 1"),
        ((), "env.num_envs=0", "a whole number from 1 to 4096"),
        ((), "logger.writers=[wandb]", "a list of csv, tensorboard or both"),
        (WANDB, "logger.writers=[paper]", "a list of csv, tensorboard and wandb"),
        (WANDB, "logger.mode=later", "one of offline, online"),
        ((), "logger.name=paper", "one of files, wandb"),
        ((), "eval_every=-1", "a whole number of at least 0"),
        ((), "eval_episodes=0", "a whole number of at least 1"),
        ((), "device=foo", "cpu, cuda, or one GPU as in cuda:0"),
        ((), "device=cuda:-1", "cpu, cuda, or one GPU as in cuda:0"),
        ((), "deterministic=1", "true or false"),
        ((), "threads=0", "a whole number from 1 to 1024"),
        ((), "seed=abc", "a whole number of at least 0"),
        ((), "seed=-1", "a whole number of at least 0"),
        ((), "seed=9223372036854775808", "a whole number of at least 0"),
        ((), "total_steps=1.0e+6", "a whole number of at least 1"),
        (DDP, "dist.master_port=70000", "a whole number from 1 to 65535"),
        (DDP, "dist.timeout_s=0", "a number, timeout_s > 0"),
        (DDP, "dist.exchange_every=0", "a whole number of at least 1"),
        (DDP, "dist.locality=near", "one of first, off"),
        (DDP, "dist.transport=mail", "one of auto, nccl, host"),
        (DDP, "dist.backend=mpi", "one of auto, gloo, nccl, gear_mpi"),
        (("dist=deepspeed",), "dist.backend=gear_mpi", "auto, gloo or nccl, as DeepSpeed has not"),
        (("dist=horovod",), "dist.backend=gloo", "auto, as dist=horovod averages by Horovod"),
        (("dist=fsdp2",), "dist.param_dtype=int8", "one of float32, bfloat16"),
        (("dist=fsdp2",), "dist.reduce_dtype=8", "one of float32, bfloat16"),
        (("dist=fsdp2",), "dist.reshard_after_forward=1", "true or false"),
        (DT, "algo.context=0", "a whole number of at least 1"),
        (DT, "algo.packed=1", "true or false"),
        (DT, "algo.target_return=high", "null or a number"),
        (DT, "algo.warmup=-1", "a whole number of at least 0"),
        (DT, "algo.final_lr=2", "a number, 0 <= final_lr <= 1"),
        (DT, "algo.max_grad_norm=0", "a number, max_grad_norm > 0"),
        (DT, "algo.precision=float16", "one of float32, bfloat16"),
        (DT, "algo.recompute=0", "true or false"),
        (DT, "algo.compile=always", "one of auto, off"),
        (DT, "algo.batch_size=0", "a whole number of at least 1"),
        (DT, "model.width=0", "a whole number of at least 1"),
        (DT, "model.layers=0", "a whole number of at least 1"),
        (DT, "model.heads=3", "a number that divides model.width=128"),
        (DT, "model.max_steps=0", "a whole number of at least 1"),
        (DT, "model.dropout=1", "a number, 0 <= dropout < 1"),
        (DT, "data.path=null", "data=saved data.path=DIR: algo=dt learns from saved data"),
        (DT, "data.path=''", "null or the directory of a run"),
        ((), "data.path=somewhere", "null, as algo=sac learns from what it stores itself"),
        (("dist=horovod",), "dist.compression=zip", "one of none, fp16"),
        ((), "dist.name=many", "one of single, ddp"),
    ],
)
def test_refused(overrides, given, allowed):
    """[area] key, what was given, what is allowed; in one line."""
    key, value = given.split("=")
    with pytest.raises(gear.InvalidArgument) as refused:
        read(changed(overrides, key, yaml.safe_load(value)))
    said = str(refused.value)
    assert said.startswith(f"[train] {key}=")
    assert f" is not possible: give {allowed}" in said
    if value[0].isalpha() or value.lstrip("-").isdigit():
        assert f"{key}={value} " in said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("rank=0", "world_size=null is not possible: give the number of ranks"),
        ("world_size=2", "rank=null is not possible: give 0 to 1"),
        ("rank=2 world_size=2", "rank=2 is not possible: give 0 to 1"),
        ("device=gpu", "device=gpu is not possible"),
        ("algo.gamma=7", None),
    ],
)
def test_read_place_checks_the_place_only(given, message):
    """Only the place: of all the rest the ranks complain together."""
    cfg = compose(*given.split())
    if message is None:
        assert read_place(cfg).device == "cpu"
    else:
        with pytest.raises(gear.InvalidArgument, match=message):
            read_place(cfg)


def test_groups_that_do_not_match_are_refused_by_the_key_that_lacks():
    with pytest.raises(gear.InvalidArgument, match=r"algo\.target_every is missing: add \+algo"):
        read(compose("algo.name=dqn"))


def test_values_keep_their_kind_and_do_not_change(configure):
    config = configure("algo.gamma=1", "env.reward_clip=2", "optim.betas=[0,0.5]", "rank=null")
    assert (config.algo.gamma, type(config.algo.gamma)) == (1.0, float)
    assert (config.env.reward_clip, config.optim.betas) == (2.0, (0.0, 0.5))
    assert config.model.hidden == (64, 64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3


def test_made_directly_is_checked_too(configure):
    config = configure()
    with pytest.raises(gear.InvalidArgument, match=r"algo\.tau=9"):
        dataclasses.replace(config.algo, tau=9)
    with pytest.raises(gear.InvalidArgument, match=r"algo\.batch_size=256"):
        dataclasses.replace(config, replay=dataclasses.replace(config.replay, capacity=100))


def test_the_written_yaml_reads_as_the_same_configuration():
    cfg = compose("env=cartpole", "dist=ddp", "rank=1", "world_size=4", "+note=mine")
    config = read(cfg)
    written = OmegaConf.create(config.yaml)
    assert (written.note, written.rank, written.world_size) == ("mine", None, None)
    assert dataclasses.replace(config, rank=None, world_size=None) == read(written)
    assert (cfg.rank, cfg.world_size) == (1, 4)  # the caller's stays as it is


def test_more_ranks_need_a_later_start(configure):
    config = configure("algo.learning_starts=10", "algo.n_step=3")
    config.check_ranks(3)
    with pytest.raises(gear.InvalidArgument, match=r"more than algo\.n_step=3 times 4 ranks"):
        config.check_ranks(4)
    message = r"more than algo\.n_step=3 times 2 ranks times env\.num_envs=2"
    with pytest.raises(gear.InvalidArgument, match=message):
        configure("algo.learning_starts=10", "algo.n_step=3", "env.num_envs=2").check_ranks(2)


@pytest.mark.parametrize(
    ("overrides", "allowed"),
    [
        ((*DT, "model=mlp"), "transformer, as in model=dt_1m, which fits algo=dt"),
        ((*BC, "model=cnn"), "mlp or transformer, as in model=dt_1m, which fits algo=bc"),
        (("model=dt_1m",), "mlp or cnn, which fits algo=sac"),
        ((*DQN, "model=dt_1m"), "mlp or cnn, which fits algo=dqn"),
    ],
)
def test_a_model_that_is_not_the_algorithms(overrides, allowed):
    with pytest.raises(
        gear.InvalidArgument, match=rf"model\.name=\w+ is not possible: give {allowed}"
    ):
        read(composed(*overrides))


@pytest.mark.parametrize("env", ["pendulum", "cartpole", "atari"])
def test_saved_data_decides_what_an_environment_would(env):
    config = read(composed(*DT, f"env={env}"))
    assert (config.algo.name, config.model.name, config.optim.name) == (
        "dt",
        "transformer",
        "adamw",
    )
    assert (config.replay.sampler, config.total_steps) == ("uniform", 10000)


@pytest.mark.parametrize(
    ("preset", "millions"), [("1m", 1), ("10m", 10), ("100m", 100), ("1b", 1000)]
)
def test_presets_have_as_many_parameters_as_they_say(preset, millions):
    model = read(composed(*DT, f"model=dt_{preset}")).model
    with torch.device("meta"):
        made = DecisionTransformer(
            obs_shape=(3,),
            num_actions=0,
            action_dim=1,
            width=model.width,
            layers=model.layers,
            heads=model.heads,
            max_steps=model.max_steps,
        )
    assert sum(p.numel() for p in made.parameters()) == pytest.approx(millions * 1e6, rel=0.1)


@pytest.mark.parametrize(
    ("written", "of", "ranks", "expected"),
    [
        ((32, 1, 1), 2, 1, (64, 2, 1)),
        ((32, 1, 1), 1, 2, (16, 1, 2)),
        ((24, 1, 1), 2, 3, (16, 2, 3)),
        ((8, 6, 5), 4, 8, (4, 3, 5)),
        ((32, 4, 2), 2, 2, (32, 4, 2)),
    ],
)
def test_over_other_ranks_keeps_the_batch_and_the_updates_of_all(written, of, ranks, expected):
    keys = ("batch_size", "train_every", "updates")
    overrides = [f"algo.{key}={value}" for key, value in zip(keys, written, strict=True)]
    before = read(compose(*overrides, "replay.capacity=1000"))
    after = before.over(ranks, of)
    assert tuple(getattr(after.algo, key) for key in keys) == expected
    assert after.replay.capacity * ranks >= 1000 * of > (after.replay.capacity - 1) * ranks
    a, b = before.algo, after.algo
    assert a.updates * b.train_every * ranks == b.updates * a.train_every * of
    assert after.yaml == before.yaml
