"""What a checkpoint holds, ready to play on one process: however many ranks saved it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import OmegaConf

import gear
from gear.train.algo import Algorithm, make_algorithm
from gear.train.config import Config, Puzzles, read
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
        config: of the run, but for `env`, which is the one to play in.
        algorithm: with the networks of the checkpoint.
    """

    checkpoint: Checkpoint
    config: Config
    algorithm: Algorithm


def load(path: Path, words: Sequence[str], *, device: str) -> Trained:
    """The checkpoint at `path`, or the last one of the run there.

    words: of `env` among them, the environment to play in; none: that of the run.
    Raises InvalidArgument if nothing is there, or if what was learned does not fit the environment;
    CorruptData if the checkpoint is damaged.
    """
    found = find(path)
    saved = complete(found.config())
    saved.dist = OmegaConf.create({"name": "single"})
    saved.rank, saved.world_size, saved.device, saved.checkpoint = None, None, device, None
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
        saved.env = environment(words, saved).env
        config = replace(config, env=read(saved).env)
        _check(own, config, found)
    finally:
        own.close()
    return Trained(found, config, algorithm)


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
    return Trained(found, config, algorithm)


def _check(own: Environment, config: Config, found: Checkpoint) -> None:
    other = make_environment(config.env, config.seed)
    try:
        if _shown(own) != _shown(other):
            raise gear.InvalidArgument(
                f"[train] {found.path} has learned {own.id}, with {_shown(own)}, and {other.id} "
                f"has {_shown(other)}: choose the env= that it is from, or one like it"
            )
    finally:
        other.close()


def _shown(env: Environment) -> str:
    actions = f"{env.num_actions} discrete" if env.num_actions else f"{env.action_dim} continuous"
    return f"observations {env.obs_dtype} {list(env.view.shape)} and {actions} actions"
