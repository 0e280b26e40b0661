"""What a checkpoint or an exported policy holds, ready to play on one process: however many ranks
saved it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.algo import Algorithm, make_algorithm
from gear.train.algo.base import Player
from gear.train.config import Config, Puzzles, read
from gear.train.models.exported import load_policy
from gear.train.policies.words import environment
from gear.train.ranks import Ranks
from gear.train.record.checkpoint import Checkpoint, find
from gear.train.record.resume import complete
from gear.train.tasks.environment import Environment
from gear.train.tasks.make import make_environment
from gear.train.tasks.seeding import seed_everything


@dataclass(frozen=True)
class Trained:
    """
    Attributes:
        path: of the checkpoint, or the file.
        run_dir: where it is from.
        config: of the run, but for `env`, which is the one to play in.
        player: makes what plays an episode.
        algorithm: with the networks of the checkpoint; None: of a file.
    """

    path: Path
    run_dir: Path
    config: Config
    player: Callable[[], Player]
    algorithm: Algorithm | None


def load(path: Path, words: Sequence[str], *, device: str) -> Trained:
    """The exported policy or the checkpoint at `path`, or the last one of the run there.

    words: of `env` among them, the environment to play in; none: that of the run.
    Raises InvalidArgument if nothing is there, or if what was learned does not fit the environment;
    CorruptData if the checkpoint is damaged.
    """
    if path.is_file():
        return _exported(path, words, device)
    found = find(path)
    saved = _alone(found.config(), device)
    config = read(saved)
    if isinstance(config.data, Puzzles):
        return _answers(found, config, words)
    seed_everything(config.seed, config.threads, deterministic=config.deterministic)
    ranks = Ranks.single(config.device)
    own = make_environment(config.env, config.seed)
    try:
        algorithm = make_algorithm(config, own, ranks)
        algorithm.share()
        algorithm.load_state_dict(found.state()["algorithm"])
        algorithm.ready_to_play()
        config = _elsewhere(config, own, words, saved, found.path)
    finally:
        own.close()
    return Trained(found.path, found.run_dir, config, algorithm.player, algorithm)


def _exported(path: Path, words: Sequence[str], device: str) -> Trained:
    policy = load_policy(path)
    of_the_run = OmegaConf.create(policy.config)
    assert isinstance(of_the_run, DictConfig)
    saved = _alone(of_the_run, device)
    config = read(saved)
    seed_everything(config.seed, config.threads, deterministic=config.deterministic)
    policy.network.to(Ranks.single(config.device).device)
    own = make_environment(config.env, config.seed)
    try:
        config = _elsewhere(config, own, words, saved, path)
    finally:
        own.close()
    return Trained(path, path.parent, config, lambda: lambda view, _: policy.best(view), None)


def _alone(config: DictConfig, device: str) -> DictConfig:
    """Of a run, for one process."""
    saved = complete(config)
    saved.dist = OmegaConf.create({"name": "single"})
    saved.rank, saved.world_size, saved.device, saved.checkpoint = None, None, device, None
    return saved


def _elsewhere(
    config: Config, own: Environment, words: Sequence[str], saved: DictConfig, path: Path
) -> Config:
    """`config` with the environment that the words name, which must be like the run's `own`."""
    saved.env = environment(words, saved).env
    config = replace(config, env=read(saved).env)
    _check(own, config, path)
    return config


def _answers(found: Checkpoint, config: Config, words: Sequence[str]) -> Trained:
    if any(word.partition("=")[0].split(".")[0] == "env" for word in words):
        raise gear.InvalidArgument(
            f"[train] {found.path} has learned to answer grid puzzles and plays no environment: "
            "leave env= out, or give the checkpoint of a run that plays"
        )
    seed_everything(config.seed, config.threads, deterministic=config.deterministic)
    algorithm = make_algorithm(config, None, Ranks.single(config.device))
    algorithm.share()
    algorithm.load_state_dict(found.state()["algorithm"])
    algorithm.ready_to_play()
    return Trained(found.path, found.run_dir, config, algorithm.player, algorithm)


def _check(own: Environment, config: Config, path: Path) -> None:
    other = make_environment(config.env, config.seed)
    try:
        if _shown(own) != _shown(other):
            raise gear.InvalidArgument(
                f"[train] {path} has learned {own.id}, with {_shown(own)}, and {other.id} "
                f"has {_shown(other)}: choose the env= that it is from, or one like it"
            )
    finally:
        other.close()


def _shown(env: Environment) -> str:
    actions = f"{env.num_actions} discrete" if env.num_actions else f"{env.action_dim} continuous"
    return f"observations {env.obs_dtype} {list(env.view.shape)} and {actions} actions"
