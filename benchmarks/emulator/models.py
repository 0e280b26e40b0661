"""The models of the evaluation set, of their published sizes and in their own words: shapes and
numbers of parameters are what counts here, and batches with which a GPU takes longer than its host.
`small` ones of the same shape are for CPUs.

resnet152: He et al. 2016 (1512.03385). vgg19: Simonyan & Zisserman 2014 (1409.1556). bert-large:
Devlin et al. 2018 (1810.04805). deepfm: Guo et al. 2017 (1703.04247). t5-large: Raffel et al. 2019
(1910.10683). decoder: as Llama's blocks, Touvron et al. 2023 (2302.13971).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Tensor, ...]


@dataclass
class Task:
    """A model, the layers that FSDP shards one by one, and its batch of a rank."""

    model: nn.Module
    blocks: list[nn.Module]
    batch: Callable[[torch.device], Batch]
    loss: Callable[[nn.Module, Batch], Tensor]


class Bottleneck(nn.Module):
    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.path = nn.Sequential(
            *(nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            *(nn.BatchNorm2d(width), nn.ReLU(True)),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.beside = (
            nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride > 1 or given != out
            else nn.Identity()
        )

    def forward(self, given: Tensor) -> Tensor:
        return functional.relu(self.path(given) + self.beside(given))


def _images(count: int, side: int, classes: int) -> Callable[[torch.device], Batch]:
    return lambda device: (
        torch.randn(count, 3, side, side, device=device),
        torch.randint(classes, (count,), device=device),
    )


def _classified(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch[0]).float(), batch[1])


def resnet152(small: bool) -> Task:
    depths, width, side, count = (
        ((1, 1, 1, 1), 8, 32, 4) if small else ((3, 8, 36, 3), 64, 224, 256)
    )
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        *(nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)),
    ]
    blocks: list[nn.Module] = []
    given = width
    for stage, depth in enumerate(depths):
        for place in range(depth):
            blocks.append(Bottleneck(given, width << stage, 2 if stage and not place else 1))
            given = 4 * (width << stage)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 1000)]
    return Task(
        nn.Sequential(*layers, *blocks, *head), blocks, _images(count, side, 1000), _classified
    )


def vgg19(small: bool) -> Task:
    widths = [64, 64, 0, 128, 128, 0, *[256] * 4, 0, *[512] * 4, 0, *[512] * 4, 0]
    scale, side, hidden, count = (16, 32, 64, 4) if small else (1, 224, 4096, 64)
    layers: list[nn.Module] = []
    given = 3
    for width in (one // scale for one in widths):
        if width:
            layers += [nn.Conv2d(given, width, 3, padding=1), nn.ReLU(True)]
            given = width
        else:
            layers.append(nn.MaxPool2d(2))
    flat = given * (side // 32) ** 2
    head = [
        *(nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(True), nn.Dropout()),
        *(nn.Linear(hidden, hidden), nn.ReLU(True), nn.Dropout(), nn.Linear(hidden, 1000)),
    ]
    return Task(nn.Sequential(*layers, *head), [], _images(count, side, 1000), _classified)


def _words(count: int, length: int, vocabulary: int) -> Callable[[torch.device], Batch]:
    return lambda device: (torch.randint(vocabulary, (count, length), device=device),)


class Bert(nn.Module):
    def __init__(self, width: int, depth: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.words.weight, std=0.02)  # it gives the logits, too
        self.places = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, max(1, width // 64), 4 * width, 0.1, "gelu", batch_first=True
            )
            for _ in range(depth)
        )
        self.before = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))

    def forward(self, words: Tensor) -> Tensor:
        found = self.words(words) + self.places
        for block in self.blocks:
            found = block(found)
        return functional.linear(self.before(found), self.words.weight)


def _each_word(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch[0]).float().flatten(0, 1), batch[0].flatten())


def bert_large(small: bool) -> Task:
    width, depth, vocabulary, length, count = (
        (64, 2, 500, 16, 2) if small else (1024, 24, 30522, 128, 256)
    )
    model = Bert(width, depth, vocabulary, length)
    return Task(model, list(model.blocks), _words(count, length, vocabulary), _each_word)


class DeepFM(nn.Module):
    """Fields of one vocabulary each; gradients of the tables are dense."""

    def __init__(self, fields: int, vocabulary: int, width: int, hidden: int) -> None:
        super().__init__()
        self.table = nn.Embedding(fields * vocabulary, width)
        self.alone = nn.Embedding(fields * vocabulary, 1)
        self.first: Tensor
        self.register_buffer("first", torch.arange(fields) * vocabulary)
        self.deep = nn.Sequential(
            *(nn.Linear(fields * width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)),
        )

    def forward(self, fields: Tensor) -> Tensor:
        places = fields + self.first
        found = self.table(places)
        pairs: Tensor = (found.sum(1).square() - found.square().sum(1)).sum(1) / 2
        alone: Tensor = self.alone(places).sum((1, 2))
        deep: Tensor = self.deep(found.flatten(1)).squeeze(1)
        return pairs + alone + deep


def deepfm(small: bool) -> Task:
    fields, vocabulary, width, hidden, count = (
        (4, 50, 4, 16, 8) if small else (39, 50_000, 16, 1024, 16_384)
    )

    def batch(device: torch.device) -> Batch:
        return (
            torch.randint(vocabulary, (count, fields), device=device),
            torch.randint(2, (count,), device=device).float(),
        )

    def loss(model: nn.Module, given: Batch) -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(given[0]).float(), given[1])

    return Task(DeepFM(fields, vocabulary, width, hidden), [], batch, loss)


class T5(nn.Module):
    """Its encoder and decoder, with learnt places for its relative ones."""

    def __init__(self, width: int, depth: int, vocabulary: int, length: int) -> None:
        super().__init__()
        heads = max(1, width // 64)
        self.words = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.words.weight, std=0.02)  # it gives the logits, too
        self.places = nn.Parameter(torch.zeros(length, width))
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, batch_first=True)
            for _ in range(depth)
        )
        self.decoder = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, 0.1, batch_first=True)
            for _ in range(depth)
        )

    def forward(self, words: Tensor) -> Tensor:
        read = told = self.words(words) + self.places
        for block in self.encoder:
            read = block(read)
        for block in self.decoder:
            told = block(told, read, tgt_is_causal=False)
        return functional.linear(told, self.words.weight)


def t5_large(small: bool) -> Task:
    width, depth, vocabulary, length, count = (
        (64, 2, 500, 16, 2) if small else (1024, 24, 32128, 512, 64)
    )
    model = T5(width, depth, vocabulary, length)
    return Task(
        model, [*model.encoder, *model.decoder], _words(count, length, vocabulary), _each_word
    )


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // 128)
        self.asked = nn.Linear(width, 3 * width, bias=False)
        self.joined = nn.Linear(width, width, bias=False)
        self.gates = nn.Linear(width, 8 * width // 3 // 64 * 64 * 2, bias=False)
        self.narrow = nn.Linear(self.gates.out_features // 2, width, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))

    def forward(self, given: Tensor) -> Tensor:
        count, length, width = given.shape
        parts = self.asked(self.norms[0](given)).view(count, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        given = given + self.joined(seen.transpose(1, 2).reshape(count, length, width))
        gate, wide = self.gates(self.norms[1](given)).chunk(2, dim=-1)
        fed: Tensor = self.narrow(functional.silu(gate) * wide)
        return given + fed


class Decoder(nn.Module):
    def __init__(self, width: int, depth: int, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        found = self.words(words)
        for block in self.blocks:
            found = block(found)
        logits: Tensor = self.head(found)
        return logits


def decoder(small: bool) -> Task:
    width, depth, vocabulary, length, count = (
        (128, 2, 512, 16, 2) if small else (2048, 16, 32000, 1024, 16)
    )
    model = Decoder(width, depth, vocabulary)
    return Task(model, list(model.blocks), _words(count, length, vocabulary), _each_word)


MODELS: dict[str, Callable[[bool], Task]] = {
    "resnet152": resnet152,
    "vgg19": vgg19,
    "bert-large": bert_large,
    "deepfm": deepfm,
    "t5-large": t5_large,
    "decoder": decoder,
}
