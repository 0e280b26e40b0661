"""Every collective of torch.distributed, checked against a slow reference; then a model of two
layers under DistributedDataParallel, which has to learn a linear function."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

import torch
import torch.nn.functional as F
from collectives import check_all
from progress import Progress, add_options
from ranks import Ranks, parser_of, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

INPUTS, HIDDEN, OUTPUTS = 16, 64, 4


def parser() -> ArgumentParser:
    parser = parser_of(__doc__)
    add_options(parser, steps=300, batch_size=64, rate=0.05, below=0.05)
    parser.add_argument("--elements", type=int, default=1000, help="of a tensor of a collective")
    return parser


def train(options: Namespace, ranks: Ranks) -> list[float]:
    """The mean loss over the ranks of each step."""
    check_all(ranks, options.elements)
    share = ranks.share(options.batch_size)
    torch.manual_seed(options.seed)
    weight = torch.randn(INPUTS, OUTPUTS, device=ranks.device) / INPUTS**0.5
    bias = torch.randn(OUTPUTS, device=ranks.device)
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUTPUTS)
        ).to(ranks.device),
        process_group=ranks.group,
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    own = torch.Generator().manual_seed(1000 * options.seed + ranks.rank)
    progress = Progress(ranks, options, "rows")
    done = False
    while not done:
        inputs = torch.randn(share, INPUTS, generator=own).to(ranks.device)
        loss = F.mse_loss(model(inputs), inputs @ weight + bias)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done = progress.step(loss)
    progress.finish(model)
    return progress.losses


if __name__ == "__main__":
    sys.exit(run("generic", parser(), train))
