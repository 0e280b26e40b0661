"""Grid puzzles by a pixel transformer: the task of Chollet 2019 (arXiv:1911.01547), learned from
demonstrations in the input as by Garg et al. 2022 (arXiv:2208.01066)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import gear
from gear.train.algo.base import Player
from gear.train.algo.one_loss import OneLoss
from gear.train.config import Config, Pixels, PuzzleAlgo, Puzzles
from gear.train.models.pixels import PixelTransformer
from gear.train.ranks import Ranks
from gear.train.tasks.puzzles import canvas, store
from gear.train.tasks.puzzles.augment import draws, exchange_colours, mirror
from gear.train.tasks.puzzles.canvas import OUTSIDE, Asked
from gear.train.tasks.puzzles.puzzle import Puzzle
from gear.train.tasks.puzzles.sets import Sets, make_sets

SCORES = ("solved", "accuracy", "pixel_difference")


class PuzzleSolver(OneLoss[PixelTransformer]):
    """Predicts the colours of the cells of an answer, from the puzzle's other pairs.

    In each update any pair of a puzzle may be the query, and colours and symmetries of the puzzle
    are drawn; all of that follows from seed, update and puzzle. The loss of a puzzle is the mean
    cross entropy of the answer's cells, plus that of the cells outside of it, by which its size is
    learned: a small answer on a large canvas weighs as much as a large one.
    """

    metric_names = ("loss", "cells_wrong")
    unit = "episode"

    def __init__(self, config: Config, ranks: Ranks) -> None:
        assert isinstance(config.algo, PuzzleAlgo)
        assert isinstance(config.data, Puzzles)
        assert isinstance(config.model, Pixels)
        self._data, model = config.data, config.model
        shape: dict[str, Any] = {
            "num_colours": canvas.NUM_COLOURS,
            "num_answers": OUTSIDE + 1,
            "outside": OUTSIDE,
            "side": config.data.most,
            "pairs": config.data.pairs,
            "width": model.width,
            "layers": model.layers,
            "heads": model.heads,
            "dropout": model.dropout,
            "precision": getattr(torch, config.algo.precision),
        }
        super().__init__(config, None, ranks, lambda: PixelTransformer(**shape))
        cells = config.data.pairs * config.data.most**2
        self.chosen = {"attention": f"over {cells:,} cells a puzzle, scaled_dot_product_attention"}
        self.outputs = store.outputs(config.data)

    def look(self) -> Sets:
        self._sets = make_sets(self._data, self._config.seed)
        if self._sets.size < self._ranks.size:
            raise gear.InvalidArgument(
                f"[train] {self._sets}: not one to learn from for each of {self._ranks.size} "
                "ranks: start fewer ranks"
            )
        self.score_names = [f"{name}_{score}" for name in self._sets.scored for score in SCORES]
        return self._sets

    def open(self, group: gear.Group) -> gear.ReplayBuffer:
        return store.fill(self._sets, self._config.replay.tier, group)

    def player(self) -> Player:
        raise gear.InvalidArgument(
            "[train] algo=puzzles answers puzzles and plays no environment: its scores say how well"
        )

    def asked(self, batch: gear.Batch) -> Asked:
        """The puzzles of a batch, as this update asks them."""
        there = batch.masks["input"]
        drawn = draws(self._config.seed, self._updates, batch["puzzle"])
        grids = batch["input"], batch["output"]
        asked = canvas.ask(*grids, there, drawn[:, 12] % there.sum(1))
        whole = torch.cat([asked.inputs, asked.outputs, asked.answers[:, None]], 1)
        if self._data.colours:
            whole = exchange_colours(whole, drawn[:, :9])
        if self._data.symmetries:
            whole = mirror(whole, drawn[:, 9:12])
        pairs = there.shape[1]
        return Asked(whole[:, :pairs], whole[:, pairs : 2 * pairs], whole[:, -1])

    def learn(self, batch: gear.Batch) -> Tensor:
        """One update; returns the loss of each puzzle, float32 [B]."""
        asked = self.asked(batch)
        logits = self._trained.model(asked.inputs, asked.outputs)
        losses = puzzle_losses(logits, asked.answers)
        wrong = (logits.detach().argmax(-1) != asked.answers).float().mean()
        return self.descend(batch, losses, wrong)

    @torch.no_grad()
    def answer(self, asked: Asked) -> Tensor:
        """The predicted colours, int64 [B, S, S]."""
        self._playing.eval()
        where = self.device
        found: Tensor = self._playing(asked.inputs.to(where), asked.outputs.to(where)).argmax(-1)
        self._model.train()
        return found

    def scores(self) -> dict[str, float]:
        """Of every set."""
        found = [value for puzzles in self._sets.scored.values() for value in self.score(puzzles)]
        return dict(zip(self.score_names, found, strict=True))

    def score(self, puzzles: Sequence[Puzzle]) -> list[float]:
        """SCORES of these puzzles, which are divided among the ranks; collective."""
        from gear.train.tasks.puzzles.metrics import Solved  # takes half a second

        metric, mine = Solved(self._ranks), puzzles[self._ranks.rank :: self._ranks.size]
        for first in range(0, len(mine), self._plan.batch_size):
            some = mine[first : first + self._plan.batch_size]
            asked = canvas.ask_of(some, self._data.pairs, self._data.most)
            metric.update(self.answer(asked), asked.answers.to(self.device))
        found: list[float] = metric.compute().tolist()
        return found


def puzzle_losses(logits: Tensor, answers: Tensor) -> Tensor:
    """Mean cross entropy of the cells inside the answer, plus that of those outside; float32 [B].

    logits: float [B, S, S, colours]; answers: int64 [B, S, S], OUTSIDE where there is no cell.
    """
    flat = F.cross_entropy(logits.flatten(0, 2), answers.flatten(), reduction="none")
    of_cells, inside = flat.view(len(answers), -1), (answers != OUTSIDE).flatten(1)
    sums = torch.where(inside, of_cells, 0.0).sum(1), torch.where(inside, 0.0, of_cells).sum(1)
    cells = inside.sum(1)
    surplus = inside.shape[1] - cells
    return sums[0] / cells.clamp(min=1) + sums[1] / surplus.clamp(min=1)
