"""A decision transformer of 100 million parameters that trains from pinned replay: its waiting.

After Chen et al., arXiv:2106.01345: contexts of 20 steps, each of them a return-to-go, an
observation and an action token; the model predicts the action. bfloat16 by autocast.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gpu_rows import forget
from gpu_timing import Gpu, event_pairs_us
from torch import nn
from torch.nn import functional

import gear

CONTEXT = 20
EPISODE = 1000
OBS, ACTION = 17, 6
COLUMNS = [
    gear.Column("obs", (OBS,), "float32"),
    gear.Column("action", (ACTION,), "float32"),
    gear.Column("to_go", (1,), "float32"),
    gear.Column("time", (), "int32"),
]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.into_attention = nn.Linear(width, 3 * width)
        self.out_of_attention = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        size, length, width = x.shape
        shape = (size, length, 3, self.heads, width // self.heads)
        q, k, v = self.into_attention(self.before_attention(x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out_of_attention(attended.transpose(1, 2).reshape(size, length, width))
        found: torch.Tensor = x + self.mlp(self.before_mlp(x))
        return found


class DecisionTransformer(nn.Module):
    """14 layers of width 768: 100 million parameters."""

    def __init__(self, layers: int = 14, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.time = nn.Embedding(EPISODE, width)
        self.to_go = nn.Linear(1, width)
        self.obs = nn.Linear(OBS, width)
        self.action = nn.Linear(ACTION, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, ACTION), nn.Tanh())
        causal = torch.ones(3 * CONTEXT, 3 * CONTEXT, dtype=torch.bool).tril()
        self.register_buffer("causal", causal, persistent=False)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, batch: Any) -> torch.Tensor:
        there = batch.masks["obs"]
        time_of = self.time(batch["time"].long())
        inputs = ("to_go", "obs", "action")
        tokens = [getattr(self, name)(batch[name]) + time_of for name in inputs]
        x = torch.stack(tokens, 2).flatten(1, 2)
        # Padding is not looked at, but by itself: a row of nothing would be NaN.
        keys = there.repeat_interleave(3, 1)[:, None, None, :]
        mask = self.causal & (keys | torch.eye(3 * CONTEXT, dtype=torch.bool, device=x.device))
        for block in self.blocks:
            x = block(x, mask)
        predicted = self.head(x[:, 1::3]).float()
        losses = (predicted - batch["action"]).square().mean(-1) * there
        loss: torch.Tensor = losses.sum() / there.sum()
        return loss


def experience(gpu: Gpu) -> gear.ReplayBuffer:
    steps = gpu.size(1_000_000, 2000)
    buffer = gear.ReplayBuffer(gear.Schema(COLUMNS), steps + steps // 10, tier=gpu.tier("pinned"))
    rng = np.random.default_rng(0)
    with buffer.writer() as writer:
        for _ in range(0, steps, EPISODE):
            rewards = rng.random((EPISODE, 1), np.float32)
            writer.extend(
                obs=rng.random((EPISODE, OBS), np.float32),
                action=rng.random((EPISODE, ACTION), np.float32) * 2 - 1,
                to_go=rewards[::-1].cumsum(0)[::-1] / EPISODE,
                time=np.arange(EPISODE, dtype=np.int32),
            )
            writer.end_episode(terminated=True)
    return buffer


class Training:
    """A model, its optimiser and its step."""

    def __init__(self, gpu: Gpu) -> None:
        torch.manual_seed(0)
        small = {"layers": 1, "width": 48, "heads": 2} if gpu.rehearsal else {}
        self.gpu = gpu
        self.model = DecisionTransformer(**small).to(gpu.device)
        fused = not gpu.rehearsal
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=fused)

    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def step(self, batch: Any) -> torch.Tensor:
        with torch.autocast(self.gpu.device, torch.bfloat16):
            loss: torch.Tensor = self.model(batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


def fetch(loader: gear.Loader) -> gear.Batch:
    """A batch with its tensors made: the current stream waits for them from here on."""
    batch = next(loader)
    for column in COLUMNS:
        batch[column.name]
    batch.masks["obs"]
    return batch


@dataclass
class Waiting:
    """Steps over fresh batches, and how long the training stream and the host waited for them."""

    step_us: list[float] = field(default_factory=list)  # of each round
    without_us: list[float] = field(default_factory=list)  # of each round over one batch that stays
    events: list[tuple[Any, Any]] = field(default_factory=list)
    host_us: list[float] = field(default_factory=list)


def round_of_steps(
    gpu: Gpu, training: Training, loader: gear.Loader, steps: int, into: Waiting
) -> torch.Tensor:
    """Events on the consumer's stream before and after a batch: what passes in between is data's,
    whether the GPU waits for the batch or for the host that asks for it."""
    gpu.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        pair = None if gpu.rehearsal else [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        if pair:
            pair[0].record()
        entered = time.perf_counter()
        batch = fetch(loader)
        into.host_us.append((time.perf_counter() - entered) * 1e6)
        if pair:
            pair[1].record()
            into.events.append((pair[0], pair[1]))
        loss = training.step(batch)
    gpu.synchronize()
    into.step_us.append((time.perf_counter() - began) / steps * 1e6)
    began = time.perf_counter()
    for _ in range(steps):
        training.step(batch)
    gpu.synchronize()
    into.without_us.append((time.perf_counter() - began) / steps * 1e6)
    return loss


def measure(gpu: Gpu, buffer: gear.ReplayBuffer, batch_size: int) -> dict[str, Any]:
    training = Training(gpu)
    window = gear.Window(1 - CONTEXT, 1, pad="head")
    outputs = {column.name: window for column in COLUMNS}
    loader = buffer.loader(batch_size, outputs=outputs, **gpu.to_gpu())
    steps = gpu.size(20)
    first = round_of_steps(gpu, training, loader, steps, Waiting())
    found = Waiting()
    for _ in range(5):
        last = round_of_steps(gpu, training, loader, steps, found)
    stats = loader.stats()
    loader.close()
    step_us = statistics.median(found.step_us)
    waited = event_pairs_us(found.events) or [0.0]
    return {
        "batch_size": batch_size,
        "parameters": training.parameters(),
        "steps": steps * 5,
        "step_us": step_us,
        "step_us_rounds": found.step_us,
        "step_without_loader_us": statistics.median(found.without_us),
        "step_without_loader_us_rounds": found.without_us,
        "wait_us_mean": statistics.fmean(waited),
        "wait_us_most": max(waited),
        "wait_share": statistics.fmean(waited) / step_us,
        "host_us_in_next": statistics.median(found.host_us),
        "path": stats.get("path", ""),
        "first_loss": float(first),
        "last_loss": float(last),
    }


def transformer(gpu: Gpu) -> list[dict[str, Any]]:
    buffer = experience(gpu)
    rows = []
    for batch_size in (64, 256):
        rows.append(measure(gpu, buffer, gpu.size(batch_size, 2)))
        forget(gpu)
    buffer.close()
    return rows
