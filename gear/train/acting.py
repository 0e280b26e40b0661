"""Acting: one rank plays its environments and stores what it sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import gear
from gear.train.algo import OffPolicy
from gear.train.config import ActingAlgo
from gear.train.counters import Counters, Ended
from gear.train.ranks import Ranks
from gear.train.tasks.environment import Environment
from gear.train.tasks.playing import Playing


class Acting:
    """Environments between two steps; an Acting made from its `state` goes on as it would have.

    The rank's episodes are numbered in the order in which they begin, over all its environments.

    Args:
        counters: counts the steps taken here; those of all ranks.
        plan: when updates are due.
        saved: the `state` to go on from; None: the first episodes start.

    Attributes:
        playing: one for each environment, with an episode of its own.
        writer: of all of them.
        ended: the episodes that ended here; whoever takes the news empties it.
    """

    def __init__(
        self,
        envs: Sequence[Environment],
        buffer: gear.ReplayBuffer,
        counters: Counters,
        plan: ActingAlgo,
        *,
        note: Callable[[str], None],
        saved: dict[str, Any] | None = None,
    ) -> None:
        self._counters = counters
        self._plan = plan
        self.ended = [Ended(**ended) for ended in saved.get("ended", [])] if saved else []
        opened = _open_episodes(buffer, saved) if saved else {}
        rank, episodes = (saved["rank"], saved.get("episodes", [])) if saved else (0, [])
        self.writer = buffer.writer(
            len(envs),
            autoreset="disabled",
            episode=[opened.pop((rank, index), None) for index in range(len(envs))],
        )
        self.playing = [
            Playing(env, self._begin, note=note, saved=episodes[index] if episodes else None)
            for index, env in enumerate(envs)
        ]
        for index, each in enumerate(self.playing):
            if each.given_up is not None and self.writer.episodes[index] is not None:
                final = {name: np.stack([v] * len(envs)) for name, v in each.given_up.items()}
                self.writer.end_episode(mask=np.arange(len(envs)) == index, final=final)
        for gone in saved["gone"] if saved else []:
            self.ended += [Ended(**ended) for ended in gone.get("ended", [])]
            _truncate(buffer, gone, opened, envs[0], note)

    def step(self, algorithm: OffPolicy[Any], ranks: Ranks) -> int:
        """One step of each environment, which all ranks take; stored at once.

        Returns how many updates are due.
        """
        c = self._counters
        views = np.stack([each.env.view for each in self.playing])
        actions = algorithm.act(views, c.env_steps)
        ranks.check()  # acting waits for a GPU, in vain if a peer has ended
        c.env_steps += ranks.size * len(self.playing)
        taken = [each.step(action) for each, action in zip(self.playing, actions, strict=True)]

        stored = time.perf_counter()
        self._store(taken)
        c.replay_seconds += time.perf_counter() - stored

        for each, (_, terminated, truncated) in zip(self.playing, taken, strict=True):
            if terminated or truncated:
                self.ended.append(Ended(c.env_steps, each.episode_return, each.length))
                each.next_episode()
        if c.env_steps < self._plan.learning_starts:
            return 0
        own_steps, every = c.env_steps // ranks.size, self._plan.train_every
        passed = own_steps // every - (own_steps - len(self.playing)) // every
        return self._plan.updates * passed

    def _store(self, taken: Sequence[tuple[dict[str, Any], bool, bool]]) -> None:
        """What each environment's step gave; of ended episodes the closing observation, too."""
        rows, _, truncated = zip(*taken, strict=True)
        final = None
        if any(ends or cut for _, ends, cut in taken):
            last = [each.env.stored(each.env.obs) for each in self.playing]
            final = {name: np.stack([one[name] for one in last]) for name in last[0]}
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        self.writer.append(**columns, truncated=np.array(truncated), final=final)

    def state(self) -> dict[str, Any]:
        """Everything of this rank that the buffer and the counters do not hold."""
        uids = self.writer.episodes
        return {
            "ended": [asdict(ended) for ended in self.ended],
            "episodes": [
                {"uid": uid, **each.state()} for uid, each in zip(uids, self.playing, strict=True)
            ],
        }

    def _begin(self) -> int:
        self._counters.episodes += 1
        return self._counters.episodes - 1


def _open_episodes(buffer: gear.ReplayBuffer, saved: dict[str, Any]) -> dict[tuple[int, int], int]:
    """The open episodes of this shard by the rank that wrote them and which of its environments.

    A buffer that another number of ranks saved has numbered them anew, in the order of their former
    numbers and of these ranks.
    """
    order = sorted(
        (episode["uid"], one["rank"], index)
        for one in (saved, *saved["gone"])
        for index, episode in enumerate(one.get("episodes", []))
        if episode["uid"] is not None
    )
    uids = [episode.uid for episode in buffer.episodes() if episode.state == "open"]
    return {(rank, index): uid for (_, rank, index), uid in zip(order, uids, strict=True)}


def _truncate(
    buffer: gear.ReplayBuffer,
    gone: dict[str, Any],
    opened: dict[tuple[int, int], int],
    env: Environment,
    note: Callable[[str], None],
) -> None:
    """Ends the episodes that a rank had begun which is there no more."""
    for index, episode in enumerate(gone["episodes"]):
        uid = opened.get((gone["rank"], index))
        if uid is None:
            continue
        with buffer.writer(episode=uid) as writer:
            writer.end_episode(final=env.stored(episode["view"][-1]))
        note(f"rank {gone['rank']} is there no more: its episode {episode['number']} ends here")
