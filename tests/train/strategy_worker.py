"""Trains a tiny transformer; as a rank of its own process, or called by a test.

strategy_worker.py FOLDER OVERRIDES NAME=OVERRIDES...
    One run for each NAME; overrides of conf/, the first for all runs, with commas between them.
    Rank 0 writes FOLDER/NAME.pt: the losses of all steps, the state after MIDDLE steps and the last
    one. A run whose name ends in -rest starts from FOLDER/middle.pt, a state after MIDDLE steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

STEPS, MIDDLE = 6, 3
SEQUENCES, LENGTH, WORDS, WIDTH = 8, 6, 11, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # a key's bias has no gradient
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).unsqueeze(1).chunk(3, dim=-1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        return x + self.narrow(F.gelu(self.widen(x)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step):
    """The global batch of a step."""
    generator = torch.Generator().manual_seed(1000 + step)
    return torch.randint(WORDS, (SEQUENCES, LENGTH + 1), generator=generator)


def train(ranks, config, state=None):
    """(losses, state after MIDDLE steps, last state)."""
    from gear.train.strategies import make_strategy

    torch.manual_seed(ranks.rank)
    module = Transformer().to(ranks.device)
    undecayed = [p for p in module.parameters() if p.ndim < 2]
    strategy = make_strategy(config.dist, ranks)
    trained = strategy.prepare(module, config.optim, undecayed=undecayed, overlap=True)
    trained.share()
    if state:
        trained.load_state_dict(state)
    losses, middle = [], state
    for step in range(MIDDLE if state else 0, STEPS):
        if step == MIDDLE and not state:
            middle = trained.state_dict()
        trained.set_lr(config.optim.lr * (step + 1) / STEPS)
        words = batch(step)[ranks.rank :: ranks.size].to(ranks.device)
        said = trained.model(words[:, :-1])
        loss = F.cross_entropy(said.flatten(0, 1), words[:, 1:].flatten())
        trained.descend(loss, max_norm=0.5)
        losses.append(sum(ranks.exchange(loss.item())) / ranks.size)
    found = losses, middle, trained.state_dict()
    if ranks.rank == 0:  # what is saved is no part of what goes on training
        assert all(t.device.type == "cpu" for t in found[2]["model"].values())
    return found


def main(folder, overrides, runs):
    from train.composed import compose

    from gear.train.config import read
    from gear.train.ranks.meeting import start_ranks

    named = dict(run.split("=", 1) for run in runs)
    configs = {n: read(compose(*overrides.split(","), *o.split(","))) for n, o in named.items()}
    for name, config in configs.items():
        start = torch.load(folder / "middle.pt") if name.endswith("-rest") else None
        with start_ranks(config) as ranks:  # as the jobs of a multirun: each has its own
            found = train(ranks, config, start)
            if ranks.rank == 0:
                torch.save(found, folder / f"{name}.pt")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
