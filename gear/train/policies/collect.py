"""`gear data collect`: plays an environment and saves what was seen, to train from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import gear
from gear.train.algo.base import Player
from gear.train.config import Config, Puzzles, read
from gear.train.config.said import command, env_words, value
from gear.train.policies import words
from gear.train.policies.play import Played, play
from gear.train.policies.trained import load
from gear.train.tasks.environment import Environment
from gear.train.tasks.make import make_environment
from gear.train.tasks.replay import schema_of
from gear.train.tasks.seeding import evaluation_seed

KEYS = ("env", "policy", "steps", "out", "seed", "random", "device", "trust")
RANDOM = "random"


def run(given: Sequence[str]) -> int:
    """Plays whole episodes until there are `steps` steps, saves them, and says what they are.

    policy=random draws actions uniformly, in the environment that `env` names; policy=CHECKPOINT,
    or an exported policy, acts greedily, but for a share `random` of the actions. Returns the exit
    code, 0; raises InvalidArgument before it plays.
    """
    keys = words.parse(given, KEYS, "data")
    steps = words.whole(keys, "steps", 10_000)
    out = Path(str(keys.get("out", "collected")))
    if out.exists():
        raise gear.InvalidArgument(f"[data] out={out} is there: name another, or move it away")
    config, make_player = _policy(keys, given)
    share = 1.0 if make_player is None else _share(keys)
    seed = evaluation_seed(words.whole(keys, "seed", 1, least=0))
    env, chance = make_environment(config.env, seed), np.random.default_rng(seed)

    def player() -> Player:
        best = make_player() if make_player else None

        def act(view: NDArray[Any], reward: float) -> Any:
            chosen = best(view, reward) if best else None
            return env.random_action(chance) if chance.random() < share else chosen

        return act

    try:
        played: list[Played] = []
        while sum(len(each.rewards) for each in played) < steps:
            played.append(play(env, len(played), player()))
        save(played, config, env, out)
    finally:
        env.close()
    learn = command(
        "gear", "train", "data=saved", f"data.path={value(str(out))}", *env_words(config.env)
    )
    team = "no algorithm learns from a team's saved data; read them by gear.ReplayBuffer.load"
    next_step = team if env.num_agents else f"learn from them by\n  {learn}"
    returns = [each.total for each in played]
    Console().print(
        f"{env.id}: {len(played):,} whole episodes in {out}, returns {min(returns):,.1f} to "
        f"{max(returns):,.1f}, mean {np.mean(returns):,.1f}; {next_step}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return 0


def save(played: Sequence[Played], config: Config, env: Environment, out: Path) -> None:
    """A buffer with the columns of a run, which holds these episodes."""
    page_steps = config.replay.page_steps
    pages = sum(-(-(len(each.rewards) + 1) // page_steps) for each in played)
    schema = schema_of(env)
    with gear.ReplayBuffer(schema, pages * page_steps, page_steps=page_steps) as buffer:
        with buffer.writer() as writer:
            for each in played:
                terminated = np.zeros(len(each.rewards), bool)
                terminated[-1] = each.terminated
                writer.extend(
                    **env.stored(each.obs),
                    action=each.actions.astype(schema["action"].dtype),
                    reward=each.learned.astype(np.float32),
                    terminated=terminated,
                )
                writer.end_episode(terminated=each.terminated, final=env.stored(each.final))
        out.parent.mkdir(parents=True, exist_ok=True)
        buffer.save(out)


def _policy(
    keys: dict[str, Any], given: Sequence[str]
) -> tuple[Config, Callable[[], Player] | None]:
    """The configuration, and what makes a player of each episode; None: actions are random."""
    policy = str(keys.get("policy", RANDOM))
    if policy == RANDOM:
        _check_random(keys)
        return read(words.environment(given)), None
    device, trust = str(keys.get("device", "cpu")), words.flag(keys, "trust")
    trained = load(Path(policy), given, device=device, trust=trust)
    if isinstance(trained.config.data, Puzzles):
        raise gear.InvalidArgument(
            f"[data] policy={policy} has learned to answer grid puzzles and plays no environment: "
            "give the checkpoint of a run that plays"
        )
    return trained.config, trained.player


def _check_random(keys: dict[str, Any]) -> None:
    """Refuses what random actions lack, and what they have no use for."""
    for key in ("random", "device"):
        if key in keys:
            raise gear.InvalidArgument(
                f"[data] {key}={keys[key]} is not possible with policy={RANDOM}, whose actions are "
                f"all random, by no network: leave {key}= out, or give policy=CHECKPOINT"
            )
    if "env" not in keys:
        raise gear.InvalidArgument(
            f"[data] env is missing: policy={RANDOM} was trained in none: give env=NAME, as "
            "env=pendulum, or policy=CHECKPOINT, which plays in its own"
        )


def _share(keys: dict[str, Any]) -> float:
    share = keys.get("random", 0.0)
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise gear.InvalidArgument(f"[data] random={share} is not possible: give 0 <= random <= 1")
    return float(share)
