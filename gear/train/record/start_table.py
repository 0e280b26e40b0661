"""What a run is made of, shown once at its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table

from gear.train.algo import Offline
from gear.train.config import ActingAlgo, Ddp
from gear.train.loop import Learner


def start_table(learner: Learner, title: str) -> Table:
    """Collective; the same on all ranks."""
    table = Table("", "", title=title, show_header=False)
    devices = learner.ranks.exchange(learner.ranks.device_name())
    for name, value in (*_ranks(learner, devices), *_work(learner)):
        table.add_row(name, value)
    for name, value in _replay(learner):
        table.add_row(name, value)
    table.add_row("checkpoints", _checkpoints(learner))
    table.add_row("evaluation", _evaluation(learner))
    return table


def _ranks(learner: Learner, devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    ranks, group, dist = learner.ranks, learner.ranks.group, learner.config.dist
    per_node = list(Counter(group.nodes).values())
    several = ranks.size > 1
    if ranks.job is not None:
        yield "real ranks", f"{ranks.job.real_in_words}; gradients are averaged over all"
    yield "ranks", f"{ranks.size}, started by {group.launcher}" if several else "1"
    yield "nodes", f"{group.num_nodes}, ranks on each: {_each(per_node)}" if several else "1"
    yield "devices", _counted(devices)
    averaged = f": gradients averaged by {ranks.backend}" if ranks.averaging > 1 else ""
    yield "strategy", f"{dist.name}{averaged}"
    if not several:
        yield "transport", "none: one rank has all batches in its own shard"
    elif isinstance(dist, Ddp):
        moved = f"batches moved by {group.transport_name}, locality {dist.locality}"
        below = learner.loader.stats()["pack_below"]
        packed = f"; owners pack runs below {below:,} bytes" if below else ""
        yield "transport", f"{moved}: {group.transport_reason}{packed}"


def _work(learner: Learner) -> Iterator[tuple[str, str]]:
    algo, size = learner.config.algo, learner.ranks.size
    share, dist = f"{algo.batch_size:,}", learner.config.dist
    learners = dist.num_learners(size) if isinstance(dist, Ddp) else size
    if learners < size:
        yield "roles", f"{learners} learn, {size - learners} only act"
    yield "batch", f"{share} a rank, {algo.batch_size * learners:,} in all" if size > 1 else share
    if isinstance(algo, ActingAlgo):
        every = algo.train_every * size
        step = "environment step" if every == 1 else f"{every:,} environment steps"
        yield "updates", f"{algo.updates} every {step}"
    if isinstance(learner.algorithm, Offline):
        yield "data", str(learner.facts)
        yield from learner.algorithm.chosen.items()


def _replay(learner: Learner) -> Iterator[tuple[str, str]]:
    replay, steps = learner.config.replay, learner.buffer.capacity
    per_node = list(Counter(learner.ranks.group.nodes).values())
    yield "replay", f"{replay.sampler} draws, memory: {replay.tier}"
    if learner.ranks.size > 1:
        yield "replay, a rank", f"{steps:,} steps"
    yield "replay, a node", _each([steps * count for count in per_node], " steps")
    yield "replay, in all", f"{steps * learner.ranks.size:,} steps"


def _unit(learner: Learner) -> str:
    """What the run's steps are."""
    return "environment steps" if learner.acting else "updates"


def _checkpoints(learner: Learner) -> str:
    config, every = learner.config, learner.config.checkpoint_every
    when = f"every {every:,} {_unit(learner)} and at the end" if every else "when interrupted only"
    return f"{when}, the newest {config.keep_checkpoints} kept"


def _evaluation(learner: Learner) -> str:
    config = learner.config
    if not config.eval_every:
        return "none"
    every = f"{config.eval_every:,} {_unit(learner)}"
    if not learner.envs:
        return f"scores every {every}"
    return f"{config.eval_episodes} greedy episodes every {every}"


def _each(values: Sequence[int], unit: str = "") -> str:
    """One number where all are equal, else the least and the greatest."""
    least, most = min(values), max(values)
    return f"{least:,}{unit}" if least == most else f"{least:,} to {most:,}{unit}"


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())
