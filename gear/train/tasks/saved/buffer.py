"""A rank's share of saved data in a buffer to learn from."""

from __future__ import annotations

import numpy as np

import gear
from gear.train.config import Config
from gear.train.tasks.environment import Environment
from gear.train.tasks.saved.episodes import episodes, kinds_of
from gear.train.tasks.saved.facts import Facts

RETURN_TO_GO = "return_to_go"


def open_saved(
    config: Config, env: Environment, facts: Facts, group: gear.Group, *, held_out: bool = False
) -> gear.ReplayBuffer:
    """A buffer of the columns obs, action, return_to_go, float32; collective.

    A return-to-go is the sum of an episode's rewards from a step to its end, as they were stored
    (clipped where the run clipped them). Every rank reads all the data and keeps its share:
    consecutive episodes, in the order of the data, with about as many steps as other ranks have.

    held_out: of the episodes that are kept apart, in memory of this rank alone; else of the others.
    """
    mine = (facts.owners(group.size) == group.rank) & (facts.held_out == held_out)
    page_steps = config.replay.page_steps
    pages = -(-facts.lengths[mine] // page_steps)
    columns = [
        *(gear.Column(name, *kind) for name, kind in kinds_of(env).items() if name != "reward"),
        gear.Column(RETURN_TO_GO, (), "float32"),
    ]
    buffer = gear.ReplayBuffer(
        gear.Schema(columns),
        max(1, int(pages.sum())) * page_steps,
        tier="host" if held_out else config.replay.tier,
        page_steps=page_steps,
        group=gear.Group.single() if held_out else group,
    )
    found = (whole for whole in episodes(facts.path, env) if whole)
    with buffer.writer() as writer:
        for keep, whole in zip(mine, found, strict=True):
            if keep:
                to_go = whole.to_go.astype(np.float32)
                writer.extend(obs=whole.obs, action=whole.action, return_to_go=to_go)
                writer.end_episode(terminated=whole.terminated)
    return buffer
