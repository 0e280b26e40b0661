"""The work: what is asked for in one call, and how many bytes that delivers.

A transition is obs, next_obs, action, reward, done: 165 bytes. A step of a sequence has no
next_obs: 97 bytes. A pair of frame stacks is 2 x 4 x 84 x 84 bytes.

Insertion has four cases, each the same work for every contestant, by its quickest public calls:

    insert_single     1000 steps of one environment, one after another as they happen
    vector_step_16    one step of each of 16 environments
    vector_step_256   the same of 256
    extend_256        256 consecutive steps of one episode, at once
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from experience import STACK, Experience, keys
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """One row of the report.

    kind: the method of a contestant that does it. items: delivered (or inserted) per call.
    item_bytes: 0 stands for "the bytes of the whole buffer" (save and load).
    """

    name: str
    kind: str
    dataset: str
    unit: str
    items: int
    item_bytes: int
    length: int = 1

    def asdict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def to_disk(self) -> bool:
        return self.kind in ("save", "load")

    @property
    def delivers(self) -> bool:
        """Whether a call gives a batch, which a prefetcher may have made before."""
        return self.kind in ("uniform", "weighted", "prioritised", "slices", "frames")


def everything(*, quick: bool) -> list[Workload]:
    """In the order of running: what changes the content of a buffer comes last."""
    single, rows = (50, 16) if quick else (1000, 256)
    transitions, frames = "transitions", "frames"
    return [
        Workload("uniform_256", "uniform", transitions, "transitions", 256, 165),
        Workload("weighted_256", "weighted", transitions, "transitions", 256, 165),
        Workload("prioritised_256", "prioritised", transitions, "transitions", 256, 165),
        *(
            Workload(f"slices_{n}", "slices", transitions, "steps", 64 * n, 97, n)
            for n in (20, 50, 100)
        ),
        Workload("save", "save", transitions, "buffers", 1, 0),
        Workload("load", "load", transitions, "buffers", 1, 0),
        Workload("insert_single", "insert_single", transitions, "steps", single, 97),
        Workload("vector_step_16", "vector_step", transitions, "steps", 16, 97),
        Workload("vector_step_256", "vector_step", transitions, "steps", rows, 97),
        Workload("extend_256", "extend", transitions, "steps", rows, 97),
        Workload("frames_256", "frames", frames, "pairs", 256, 2 * STACK * 84 * 84, STACK),
    ]


def check(workload: Workload, data: Experience, out: dict[str, NDArray[np.generic]]) -> list[str]:
    """What is wrong with a delivered batch (NumPy views of it); an empty list when nothing is.

    Padding rows of sequences and stacks are zero and are skipped.
    """
    if workload.kind in ("uniform", "weighted", "prioritised"):
        return _check_transitions(workload, data, out)
    if workload.kind == "slices":
        return _check_slices(workload, data, out)
    if workload.kind == "frames":
        return _check_frames(workload, out)
    return []


def _check_transitions(
    workload: Workload, data: Experience, out: dict[str, NDArray[np.generic]]
) -> list[str]:
    wrong = _shapes(out, obs=(workload.items, 17), next_obs=(workload.items, 17))
    key = keys(out["obs"])
    e, t = np.divmod(key, data.episode_steps + 1)
    if not np.array_equal(keys(out["next_obs"]), key + 1):
        wrong.append("next_obs is not the observation after obs")
    if not np.array_equal(out["obs"], data.observations[e, t]):
        wrong.append("obs differs from what was stored")
    if not np.array_equal(out["action"].reshape(len(key), -1), data.action[e, t]):
        wrong.append("action belongs to another step")
    if not np.array_equal(out["reward"].reshape(-1), data.reward[e, t]):
        wrong.append("reward belongs to another step")
    return wrong


def _check_slices(
    workload: Workload, data: Experience, out: dict[str, NDArray[np.generic]]
) -> list[str]:
    rows = workload.items // workload.length
    flat = out["obs"].reshape(-1, 17)
    wrong = _shapes({"obs": flat}, obs=(workload.items, 17))
    obs = flat.reshape(rows, workload.length, 17)
    stored = np.any(obs != 0, axis=2)
    e, t = np.divmod(keys(obs), data.episode_steps + 1)
    if not np.array_equal(obs[stored], data.observations[e, t][stored]):
        wrong.append("obs differs from what was stored")
    follows = (np.diff(keys(obs), axis=1) == 1) & (np.diff(e, axis=1) == 0)
    both = np.logical_and(stored[:, 1:], stored[:, :-1])
    if not follows[both].all():
        wrong.append("crosses the end of an episode")
    return wrong


def _check_frames(workload: Workload, out: dict[str, NDArray[np.generic]]) -> list[str]:
    shape = (workload.items, STACK, 84, 84)
    wrong = _shapes(out, obs=shape, next_obs=shape)
    obs, after = keys(out["obs"]), keys(out["next_obs"])
    if not np.array_equal(after[:, :-1], obs[:, 1:]):
        wrong.append("next_obs is not obs one step later")
    if not np.array_equal(after[:, -1], obs[:, -1] + 1):
        wrong.append("the newest frame of next_obs does not follow obs")
    return wrong


def _shapes(out: dict[str, NDArray[np.generic]], **wanted: tuple[int, ...]) -> list[str]:
    return [
        f"{name} is {out[name].shape}, not {shape}"
        for name, shape in wanted.items()
        if out[name].shape != shape
    ]
