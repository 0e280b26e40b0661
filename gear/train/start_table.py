"""What a run of several ranks is made of, shown once at its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gear.train.config import Ddp
from gear.train.loop import Learner


def show(console: Console, learner: Learner) -> None:
    """Collective; prints where `console` does. With one rank there is nothing to say."""
    ranks, config = learner.ranks, learner.config
    if ranks.size == 1:
        return
    assert isinstance(config.dist, Ddp)
    group = ranks.group
    devices = ranks.exchange(ranks.device_name())
    per_node: Counter[int] = Counter(group.nodes)
    steps, share = learner.buffer.capacity, config.algo.batch_size
    table = Table("", "", title=f"{config.algo.name.upper()} over ranks", show_header=False)
    table.add_row("ranks", f"{ranks.size}, started by {group.launcher}")
    table.add_row("nodes", f"{group.num_nodes}, ranks on each: {_each(list(per_node.values()))}")
    table.add_row("devices", _counted(devices))
    table.add_row("gradients", f"averaged by {ranks.backend}")
    table.add_row("batches", f"moved by {group.transport_name}, locality {config.dist.locality}")
    table.add_row("batch", f"{share:,} a rank, {share * ranks.size:,} in all")
    every = config.algo.train_every * ranks.size
    table.add_row("updates", f"{config.algo.updates} every {every:,} environment steps")
    table.add_row("replay, a rank", f"{steps:,} steps")
    table.add_row("replay, a node", _each([steps * count for count in per_node.values()], " steps"))
    table.add_row("replay, in all", f"{steps * ranks.size:,} steps")
    console.print(table)


def _each(values: Sequence[int], unit: str = "") -> str:
    """One number where all are equal, else the least and the greatest."""
    least, most = min(values), max(values)
    return f"{least:,}{unit}" if least == most else f"{least:,} to {most:,}{unit}"


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())
