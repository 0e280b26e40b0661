"""What a checkpoint or an exported policy holds, ready to play on one process: however many ranks
saved it.

Either may be a stranger's: the network is used, and the environment that the command line names, or
the file if it is known here anyway (`tasks.known`). With `trust` all that the file names is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

import gear
from gear.train.algo import Algorithm, make_algorithm
from gear.train.algo.base import Player
from gear.train.config import Config, Puzzles, read, written
from gear.train.models.exported import Policy, load_policy
from gear.train.policies.words import environment, of_env
from gear.train.ranks import Ranks
from gear.train.record import folder
from gear.train.record.checkpoint import Checkpoint, find
from gear.train.tasks.environment import Environment
from gear.train.tasks.known import is_known, is_plain, is_there
from gear.train.tasks.make import make_environment
from gear.train.tasks.seeding import seed_everything


@dataclass(frozen=True)
class Trained:
    """
    Attributes:
        path: of the checkpoint, or the file.
        run_dir: the folder of the run that it is from; None: it is a copy elsewhere.
        config: of the run, but for `env`, which is the one to play in.
        player: makes what plays an episode.
        algorithm: with the networks of the checkpoint; None: of a file.
    """

    path: Path
    run_dir: Path | None
    config: Config
    player: Callable[[], Player]
    algorithm: Algorithm | None


def load(path: Path, words: Sequence[str], *, device: str, trust: bool = False) -> Trained:
    """The exported policy or the checkpoint at `path`, or the last one of the run there.

    words: of `env` among them, the environment to play in; none: that of the run.
    trust: whether what the file names is used, though it is not known here.
    Raises InvalidArgument if nothing is there, if what was learned does not fit the environment, or
    if the file names what needs `trust`; CorruptData if it is damaged.
    """
    if path.is_file():
        return _exported(path, words, device, trust)
    found = find(path)
    saved = _alone(found.config(), device)
    config = read(saved)
    if isinstance(config.data, Puzzles):
        return _answers(found, config, words, trust)
    seed_everything(config.seed, config.threads, deterministic=config.deterministic)
    ranks = Ranks.single(config.device)
    played = _played(config, words, saved, found.path, trust)
    config = _own(config, played, trust)
    own = make_environment(config.env, config.seed)
    try:
        algorithm = make_algorithm(config, own, ranks)
        algorithm.share()
        _restore(algorithm, found, own.id)
        _check(own, played, found.path)
    finally:
        own.close()
    return Trained(found.path, found.run_dir, played, algorithm.player, algorithm)


def _exported(path: Path, words: Sequence[str], device: str, trust: bool) -> Trained:
    policy = load_policy(path)
    saved = _alone(written(policy.config, path), device)
    config = read(saved)
    seed_everything(config.seed, config.threads, deterministic=config.deterministic)
    policy.network.to(Ranks.single(config.device).device)
    played = _played(config, words, saved, path, trust)
    own = make_environment(_own(config, played, trust).env, config.seed)
    try:
        _check(own, played, path)
        _try(policy, own, path)
    finally:
        own.close()
    there = policy.run is not None and folder.run_of(path.parent) == policy.run
    run_dir = path.parent if there else None
    return Trained(path, run_dir, played, lambda: lambda view, _: policy.best(view), None)


def _alone(config: DictConfig, device: str) -> DictConfig:
    """Of a run, for one process."""
    saved = config.copy()
    saved.dist = OmegaConf.create({"name": "single"})
    saved.rank, saved.world_size, saved.device, saved.checkpoint = None, None, device, None
    saved.trust = False
    return saved


def _played(
    config: Config, words: Sequence[str], saved: DictConfig, path: Path, trust: bool
) -> Config:
    """`config` with the environment that the words name, and the file where they name none."""
    typed, of_the_file = of_env(words), config.env
    saved.env = environment(words, saved).env
    played = replace(config, env=read(saved).env)
    chosen = "env.id" in typed or is_there(asdict(played.env))
    if trust or "env" in typed or (chosen and is_plain(of_the_file.kwargs)):
        return played
    raise gear.InvalidArgument(
        f"[train] {path} asks for env.api={of_the_file.api} env.id={of_the_file.id!r} "
        f"env.kwargs={of_the_file.kwargs!r}, and it may be a stranger's: name the environment with "
        "env=, which may be followed by env.id= and +env.kwargs.KEY=, or add trust=true if you "
        "trust who made it"
    )


def _own(config: Config, played: Config, trust: bool) -> Config:
    """That with the environment that was learned in, where it is known; else that with the one to
    play in, which then has to fit."""
    return config if trust or is_known(asdict(config.env)) else played


def _restore(algorithm: Algorithm, found: Checkpoint, env_id: str) -> None:
    try:
        algorithm.load_state_dict(found.state()["algorithm"])
        algorithm.ready_to_play()
    except gear.GearError:
        raise
    except Exception as error:  # whatever networks of other sizes end in
        raise _misfit(found.path, env_id, error) from error


def _try(policy: Policy, own: Environment, path: Path) -> None:
    """InvalidArgument unless the network takes what the environment shows and says an action."""
    try:
        action = policy.best(own.view)
    except Exception as error:  # whatever a view of another size ends in
        raise _misfit(path, own.id, error) from error
    shape = own.action_kind[0]
    if action.shape != shape:
        raise _misfit(path, own.id, f"its actions are of shape {action.shape}, not {shape}")


def _misfit(path: Path, env_id: str, reason: object) -> gear.InvalidArgument:
    said = " ".join(str(reason).split())[:200]
    return gear.InvalidArgument(
        f"[train] {path} holds networks that do not fit {env_id}: {said}; choose the env= that it "
        "is from, or, if it is that one, another checkpoint: this one is damaged"
    )


def _answers(found: Checkpoint, config: Config, words: Sequence[str], trust: bool) -> Trained:
    if of_env(words):
        raise gear.InvalidArgument(
            f"[train] {found.path} has learned to answer grid puzzles and plays no environment: "
            "leave env= out, or give the checkpoint of a run that plays"
        )
    if config.data.path is not None and not trust:
        raise gear.InvalidArgument(
            f"[train] {found.path} asks for the puzzles of data.path={config.data.path!r}, and it "
            "may be a stranger's: add trust=true if these files may be read"
        )
    seed_everything(config.seed, config.threads, deterministic=config.deterministic)
    algorithm = make_algorithm(config, None, Ranks.single(config.device))
    algorithm.share()
    _restore(algorithm, found, "its own configuration")
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
