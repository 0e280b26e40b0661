#!/usr/bin/env python3
"""Measure what storing and drawing cost a loop whose 4,096 environments live on the GPU.

    python benchmarks/gpu_environments.py --json out.json   some two minutes
    python benchmarks/gpu_environments.py --rehearse        tiny, on the CPU: figures mean nothing

The environments are a few kernels (a state that turns and drifts, with ends at random), so that
what replay costs is not hidden behind a simulator. A call of the loop acts, steps them all, stores
the step and makes some updates of a twin critic and an actor from batches of 8,192 transitions, one
CUDA graph each.
Everything stays on the GPU: observations, actions, rewards and, except where it says `flags cpu`,
the flags of ends.

The same loop runs with

- `none`: nothing stored, all updates by one batch that lies there: what is left without replay;
- `gear`: `buffer.writer(4096)` and a loader on tier device;
- `ring`: tensors of the whole capacity, written by slices and read by indices, with the next
  observation stored beside each: what is written by hand. It knows no ends of episodes but a flag.

in turns, in every round. `share` is what replay adds: 1 - none / this, of the medians. `host_us` is
what the calls that store and draw take of the host's time, with what it waits in them for flags.

The JSON holds machine, runs, targets and seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_report
import torch
from gpu_timing import Gpu, gpu_for
from torch import Tensor, nn

import gear

OBS, ACTIONS = 60, 8
MOST_SHARE = 0.05
GAMMA = 0.99
ROUNDS = 5


Batch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Observation, action, reward, next observation, whether it is terminal."""


class Environments:
    """N of them, in a few kernels; an episode ends in one step of 300."""

    def __init__(self, count: int, device: str) -> None:
        self.generator = torch.Generator(device).manual_seed(1)
        self.turn = torch.randn(OBS, OBS, device=device, generator=self.generator) / OBS**0.5
        self.push = torch.randn(ACTIONS, OBS, device=device, generator=self.generator)
        self.obs = torch.randn(count, OBS, device=device, generator=self.generator)
        self.count, self.device = count, device

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """As a simulator does that resets itself: obs, reward, terminated, truncated, final obs."""
        chance = torch.rand(self.count, device=self.device, generator=self.generator)
        fresh = torch.randn(self.count, OBS, device=self.device, generator=self.generator)
        new = torch.tanh(self.obs @ self.turn + action @ self.push)
        terminated, truncated = chance < 1 / 600, chance > 1 - 1 / 600
        ended = (terminated | truncated)[:, None]
        self.obs = torch.where(ended, fresh, new)
        return self.obs, new.square().mean(1), terminated, truncated, new


class Learner:
    """Twin critics and a deterministic actor, without targets: the work, not its results."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(2)
        self.critics = [net(OBS + ACTIONS, 1).to(device) for _ in range(2)]
        self.actor = net(OBS, ACTIONS).to(device)
        weights = [p for critic in self.critics for p in critic.parameters()]
        self.device = device
        on_gpu = device != "cpu"
        options: dict[str, Any] = {"lr": 1e-4, "fused": on_gpu, "capturable": on_gpu}
        self.critic_steps = torch.optim.Adam(weights, **options)
        self.actor_steps = torch.optim.Adam(self.actor.parameters(), **options)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Batch

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        return torch.tanh(self.actor(obs))

    def learn(self, batch: Batch) -> None:
        """On a GPU one CUDA graph, as fast loops have it: else the host is what they wait for."""
        if self.device == "cpu":
            self.work(batch)
            return
        if self.graph is None:
            obs, action, reward, new, terminated = (tensor.clone() for tensor in batch)
            self.inputs = obs, action, reward, new, terminated
            self.graph = self.captured()
        for there, given in zip(self.inputs, batch, strict=True):
            there.copy_(given)
        self.graph.replay()

    def captured(self) -> torch.cuda.CUDAGraph:
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self.work(self.inputs)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.work(self.inputs)
        return graph

    def work(self, batch: Batch) -> None:
        obs, action, reward, new, terminated = batch
        with torch.no_grad():
            ahead = torch.cat([new, torch.tanh(self.actor(new))], 1)
            value = torch.minimum(*(critic(ahead).squeeze(1) for critic in self.critics))
            target = reward + GAMMA * value.masked_fill(terminated, 0)
        here = torch.cat([obs, action], 1)
        loss = sum((critic(here).squeeze(1) - target).square().mean() for critic in self.critics)
        self.critic_steps.zero_grad()
        loss.backward()
        self.critic_steps.step()
        acted = torch.cat([obs, torch.tanh(self.actor(obs))], 1)
        loss = -self.critics[0](acted).mean()
        self.actor_steps.zero_grad()
        loss.backward()
        self.actor_steps.step()


def net(inputs: int, outputs: int) -> nn.Module:
    sizes = (inputs, 512, 256, outputs)
    layers: list[nn.Module] = []
    for wide, narrow in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(wide, narrow), nn.ELU()]
    return nn.Sequential(*layers[:-1])


class NoReplay:
    """Stores nothing; every batch is the same."""

    def __init__(self, gpu: Gpu, environments: int, batch: int) -> None:
        shapes = ((batch, OBS), (batch, ACTIONS), (batch,), (batch, OBS), (batch,))
        obs, action, reward, new, last = (torch.randn(s, device=gpu.device) for s in shapes)
        self.batch = obs, action, reward, new, last > 2

    def store(self, obs: Tensor, action: Tensor, outcome: Any) -> None:
        pass

    def draw(self) -> Batch:
        return self.batch

    def close(self) -> None:
        pass


class GearReplay:
    def __init__(
        self, gpu: Gpu, environments: int, batch: int, capacity: int, flags: str, sampler: Any
    ) -> None:
        schema = gear.Schema(
            [
                gear.Column("obs", (OBS,), "float32"),
                gear.Column("action", (ACTIONS,), "float32"),
                gear.Column("reward", (), "float32"),
            ]
        )
        self.buffer = gear.ReplayBuffer(schema, capacity, tier=gpu.tier("device"))
        self.writer = self.buffer.writer(environments, autoreset="same_step")
        self.flags = flags
        self.sampler = sampler
        self.arguments = {"seed": 1, "batch_size": batch, **gpu.to_gpu()}
        self.loader: gear.Loader | None = None

    def store(self, obs: Tensor, action: Tensor, outcome: Any) -> None:
        _, reward, terminated, truncated, final = outcome
        if self.flags == "cpu":
            terminated, truncated = torch.stack([terminated, truncated]).cpu()
        self.writer.append(
            obs=obs,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final={"obs": final},
        )

    def draw(self) -> Batch:
        if self.loader is None:
            outputs: dict[str, gear.Step | gear.Window | gear.Derived] = {
                "obs": gear.Step(0, "obs"),
                "action": gear.Step(0, "action"),
                "reward": gear.Step(0, "reward"),
                "new": gear.Step(1, "obs"),
                "terminated": gear.Terminated(),
            }
            self.loader = self.buffer.loader(
                sampler=self.sampler, outputs=outputs, **self.arguments
            )
        batch = next(self.loader)
        if isinstance(self.sampler, gear.Weighted):
            self.buffer.update(batch.ids, batch["reward"])
        names = ("obs", "action", "reward", "new", "terminated")
        obs, action, reward, new, terminated = (batch[name] for name in names)
        return obs, action, reward, new, terminated

    def close(self) -> None:
        self.writer.flush()
        self.writer.end_episode()
        if self.loader is not None:
            self.loader.close()
        self.buffer.close()


class Ring:
    """By hand: one tensor a column and one of the next observations."""

    def __init__(self, gpu: Gpu, environments: int, batch: int, capacity: int) -> None:
        self.calls = capacity // environments
        self.obs = torch.zeros(self.calls, environments, OBS, device=gpu.device)
        self.new = torch.zeros(self.calls, environments, OBS, device=gpu.device)
        self.action = torch.zeros(self.calls, environments, ACTIONS, device=gpu.device)
        self.reward = torch.zeros(self.calls, environments, device=gpu.device)
        size = (self.calls, environments)
        self.terminated = torch.zeros(size, dtype=torch.bool, device=gpu.device)
        self.made, self.batch, self.environments = 0, batch, environments
        self.device = gpu.device

    def store(self, obs: Tensor, action: Tensor, outcome: Any) -> None:
        _, reward, terminated, _, final = outcome
        at = self.made % self.calls
        self.obs[at], self.action[at], self.reward[at] = obs, action, reward
        self.new[at], self.terminated[at] = final, terminated
        self.made += 1

    def draw(self) -> Batch:
        count = min(self.made, self.calls) * self.environments
        at = torch.randint(count, (self.batch,), device=self.device)
        rows = (self.obs, self.action, self.reward, self.new, self.terminated)
        found = tuple(of.flatten(0, 1)[at] for of in rows)
        return found  # type: ignore[return-value]

    def close(self) -> None:
        pass


def measure(
    gpu: Gpu, make: Callable[[], Any], environments: int, updates: int, calls: int, warm: int
) -> Callable[[], tuple[float, float]]:
    """One round's seconds of a call of the loop, and the host's of these in replay."""
    envs, learner, replay = Environments(environments, gpu.device), Learner(gpu.device), make()
    in_replay = 0.0

    def loop(count: int) -> None:
        nonlocal in_replay
        obs = envs.obs
        for _ in range(count):
            action = learner.act(obs)
            outcome = envs.step(action)
            began = time.perf_counter()
            replay.store(obs, action, outcome)
            in_replay += time.perf_counter() - began
            obs = outcome[0]
            for _ in range(updates):
                began = time.perf_counter()
                batch = replay.draw()
                in_replay += time.perf_counter() - began
                learner.learn(batch)

    def fill() -> None:
        obs = envs.obs
        for _ in range(warm):
            action = learner.act(obs)
            outcome = envs.step(action)
            replay.store(obs, action, outcome)
            obs = outcome[0]

    fill()
    loop(3)

    def one_round() -> tuple[float, float]:
        nonlocal in_replay
        gpu.synchronize()
        in_replay = 0.0
        began = time.perf_counter()
        loop(calls)
        gpu.synchronize()
        return (time.perf_counter() - began) / calls, in_replay / calls

    one_round.close = replay.close  # type: ignore[attr-defined]
    return one_round


def run(gpu: Gpu, updates: int) -> list[dict[str, Any]]:
    environments, batch = gpu.size(4096, 8), gpu.size(8192, 16)
    capacity = environments * gpu.size(256, 32)
    calls, warm = gpu.size(60, 3), gpu.size(300, 40)
    by_uniform = gear.Uniform()
    by_priority = gear.Weighted(alpha=0.6, beta=0.4)
    size = (gpu, environments, batch)
    makers = {
        "none": lambda: NoReplay(*size),
        "gear": lambda: GearReplay(*size, capacity, "gpu", by_uniform),
        "gear, flags cpu": lambda: GearReplay(*size, capacity, "cpu", by_uniform),
        "gear, weighted": lambda: GearReplay(*size, capacity, "gpu", by_priority),
        "ring": lambda: Ring(*size, capacity),
    }
    loops = {
        name: measure(gpu, make, environments, updates, calls, warm)
        for name, make in makers.items()
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    for _ in range(1 if gpu.rehearsal else ROUNDS):
        for name, loop in loops.items():
            times[name].append(loop())
    for loop in loops.values():
        loop.close()  # type: ignore[attr-defined]
    base = statistics.median(seconds for seconds, _ in times["none"])
    rows = []
    for name, rounds in times.items():
        seconds = [one for one, _ in rounds]
        rows.append(
            {
                "replay": name,
                "environments": environments,
                "updates": updates,
                "batch": batch,
                "steps_per_s": round(environments / statistics.median(seconds)),
                "ms": statistics.median(seconds) * 1e3,
                "least_ms": min(seconds) * 1e3,
                "most_ms": max(seconds) * 1e3,
                "share": 1 - base / statistics.median(seconds),
                "host_us": statistics.median(host for _, host in rounds) * 1e6,
            }
        )
    return rows


def targets(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": f"share of {row['replay']}, {row['updates']} updates",
            "sign": "<=",
            "required": MOST_SHARE,
            "measured": row["share"],
            "met": None if report["machine"]["rehearsal"] else row["share"] <= MOST_SHARE,
        }
        for row in report["runs"]
        if row["replay"] in ("gear", "gear, weighted")
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes, without a GPU")
    chosen = parser.parse_args(arguments)
    gpu = gpu_for("gpu_environments", rehearse=chosen.rehearse, share=1e-2)
    if gpu is None:
        return 2
    began = time.perf_counter()
    report: dict[str, Any] = {
        "machine": gpu.facts(),
        "runs": [row for updates in (1, 8) for row in run(gpu, updates)],
    }
    report["targets"] = targets(report)
    gpu_report.finish(report, "environments on the GPU", began, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
