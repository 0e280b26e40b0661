"""The groups of `conf/`: a class is a group, a field is a key of it and carries its check."""

# ruff: noqa: RUF009  # key makes fields
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import gear
from gear.train.config.checks import (
    ConfigGroup,
    choice,
    flag,
    key,
    number,
    one,
    or_null,
    refuse,
    text,
    tuple_of,
    whole,
)

A = TypeVar("A", bound="Algo")
P = TypeVar("P", bound="ActingAlgo")


@dataclass(frozen=True, kw_only=True)
class Single(ConfigGroup):
    """One process."""

    prefix = "dist."
    name: str = key(choice("single"))


@dataclass(frozen=True, kw_only=True)
class Ddp(ConfigGroup):
    """One process per rank."""

    prefix = "dist."
    name: str = key(choice("ddp"))
    master_addr: str = key(text("the name of rank 0's machine"))
    master_port: int = key(whole(1, 65535))
    timeout_s: float = key(number("timeout_s > 0", lambda x: x > 0))
    exchange_every: int = key(whole(1))
    locality: str = key(choice("first", "off"))
    backend: str = key(choice("auto", "gloo", "nccl", "gear_mpi"))
    transport: str = key(choice("auto", "nccl", "host"))
    learners: int | None = key(or_null(whole(1)))

    def num_learners(self, num_ranks: int) -> int:
        """The first so many of the ranks learn; the others only act."""
        return min(self.learners or num_ranks, num_ranks)


DTYPES = ("float32", "bfloat16")
NAME = r"(?!\.)[A-Za-z0-9._-]+"  # what becomes part of a path
DROPOUT = number("0 <= dropout < 1", lambda x: 0 <= x < 1)


@dataclass(frozen=True, kw_only=True)
class Fsdp2(Ddp):
    """The model is shared out over the ranks, by torch."""

    name: str = key(choice("fsdp2"))
    param_dtype: str = key(choice(*DTYPES))
    reduce_dtype: str = key(choice(*DTYPES))
    reshard_after_forward: bool = key(flag())


# Of DeepSpeed's JSON what other keys of the configuration say.
SET_ELSEWHERE = {
    "train_batch_size": "algo.batch_size",
    "train_micro_batch_size_per_gpu": "algo.batch_size",
    "gradient_accumulation_steps": "algo.updates",
    "optimizer": "optim",
    "scheduler": "optim",
    "gradient_clipping": "algo.max_grad_norm",
}


@dataclass(frozen=True, kw_only=True)
class Deepspeed(Ddp):
    """DeepSpeed's engine."""

    name: str = key(choice("deepspeed"))
    config: dict[str, Any] = key(
        one(
            "DeepSpeed's JSON as a mapping, zero_optimization.stage from 0 to 3 in it, and none of "
            + ", ".join(f"{name} (see {ours})" for name, ours in SET_ELSEWHERE.items()),
            lambda value: (
                isinstance(value, dict)
                and not SET_ELSEWHERE.keys() & value.keys()
                and isinstance(value.get("zero_optimization"), dict)
                and value["zero_optimization"].get("stage") in (0, 1, 2, 3)
            ),
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "gear_mpi":
            allowed = "auto, gloo or nccl, as DeepSpeed has not been tried on gear_mpi"
            refuse("dist.backend", self.backend, allowed)


@dataclass(frozen=True, kw_only=True)
class Horovod(Ddp):
    """Horovod averages gradients."""

    name: str = key(choice("horovod"))
    compression: str = key(choice("none", "fp16"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend != "auto":
            refuse("dist.backend", self.backend, "auto, as dist=horovod averages by Horovod")


@dataclass(frozen=True, kw_only=True)
class Env(ConfigGroup):
    prefix = "env."
    name: str = key(text("a name of letters, digits and . _ -, as of a file of conf/env", NAME))
    api: str = key(choice("gymnasium", "pettingzoo"))
    id: str = key(text("the id of a Gymnasium environment, or a module with parallel_env"))
    kwargs: dict[str, Any] = key(
        one("a mapping of arguments, {} for none", lambda value: isinstance(value, dict))
    )
    frames: bool = key(flag())
    stack: int = key(whole(1))
    num_envs: int = key(whole(1, 4096))
    reward_clip: float | None = key(or_null(number("reward_clip > 0", lambda x: x > 0)))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frames and self.api != "gymnasium":
            refuse("env.frames", True, f"false, as env.api={self.api} has no Atari games")


@dataclass(frozen=True, kw_only=True)
class Data(ConfigGroup):
    """What an offline algorithm learns from."""

    prefix = "data."
    name: str = key(choice("none", "saved", "puzzles"))
    path: str | None = key(
        or_null(text("the directory of a run, of one of its checkpoints or of a saved buffer"))
    )


FAMILIES = ("recolour", "mirror", "move", "fill", "count", "copy", "extend", "outline")


@dataclass(frozen=True, kw_only=True)
class Puzzles(Data):
    """Grid puzzles, generated or from ARC's files."""

    path: str | None = key(or_null(text("a folder with ARC's JSON files")))
    families: tuple[str, ...] = key(
        tuple_of(choice(*FAMILIES), "a list of " + ", ".join(FAMILIES), least=1)
    )
    unseen_families: tuple[str, ...] = key(
        tuple_of(choice(*FAMILIES), "a list of names of families, which may be empty")
    )
    puzzles: int = key(whole(1))
    eval_puzzles: int = key(whole(1))
    least: int = key(whole(5, 30))
    most: int = key(whole(5, 30))
    pairs: int = key(whole(2))
    colours: bool = key(flag())
    symmetries: bool = key(flag())

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least > self.most:
            refuse("data.least", self.least, f"at most data.most={self.most}")
        both = set(self.families) & set(self.unseen_families)
        if both:
            allowed = f"a list without {', '.join(sorted(both))}, of which data.families has rules"
            refuse("data.unseen_families", list(self.unseen_families), allowed)


@dataclass(frozen=True, kw_only=True)
class Algo(ConfigGroup):
    """What every algorithm has."""

    prefix = "algo."
    name: str = key(choice("sac", "dqn", "mat", "iql", "dt", "bc", "puzzles"))
    batch_size: int = key(whole(1))

    def over(self: A, ranks: int, of: int) -> A:
        """What is written for `of` ranks, for `ranks`: as many items in the batch of all. Raises
        InvalidArgument if ranks cannot share the batch equally."""
        total = self.batch_size * of
        if total % ranks:
            raise gear.InvalidArgument(
                f"[train] this run learns from {total} items at a time, {self.batch_size} on each "
                f"of {of} rank(s), and {ranks} ranks cannot share them equally: start it with a "
                f"number of ranks that divides {total}"
            )
        return replace(self, batch_size=total // ranks)


@dataclass(frozen=True, kw_only=True)
class ActingAlgo(Algo):
    """What an algorithm has that acts and learns from n-step transitions."""

    gamma: float = key(number("0 < gamma <= 1", lambda x: 0 < x <= 1))
    n_step: int = key(whole(1))
    learning_starts: int = key(whole(0))
    train_every: int = key(whole(1))
    updates: int = key(whole(1))
    compile: str = key(choice("auto", "off"))
    policy_every: int = key(whole(1))

    def over(self: P, ranks: int, of: int) -> P:
        """As many updates for the environment steps of all, too."""
        steps = self.train_every * of
        common = math.gcd(steps, ranks)
        return replace(
            super().over(ranks, of),
            train_every=steps // common,
            updates=self.updates * ranks // common,
        )


@dataclass(frozen=True, kw_only=True)
class Sac(ActingAlgo):
    tau: float = key(number("0 < tau <= 1", lambda x: 0 < x <= 1))
    target_entropy: float | None = key(or_null(number()))


@dataclass(frozen=True, kw_only=True)
class Dqn(ActingAlgo):
    target_every: int = key(whole(1))
    epsilon_start: float = key(number("0 <= epsilon_start <= 1", lambda x: 0 <= x <= 1))
    epsilon_final: float = key(number("0 <= epsilon_final <= 1", lambda x: 0 <= x <= 1))
    epsilon_steps: int = key(whole(0))
    max_grad_norm: float = key(number("max_grad_norm > 0", lambda x: x > 0))


@dataclass(frozen=True, kw_only=True)
class Iql(Dqn):
    """Independent learners of a team."""


@dataclass(frozen=True, kw_only=True)
class Mat(Dqn):
    """The multi-agent transformer."""

    bins: int = key(whole(2))


@dataclass(frozen=True, kw_only=True)
class OfflineAlgo(Algo):
    """What an algorithm has that learns from data by one loss of one model."""

    warmup: int = key(whole(0))
    final_lr: float = key(number("0 <= final_lr <= 1", lambda x: 0 <= x <= 1))
    max_grad_norm: float = key(number("max_grad_norm > 0", lambda x: x > 0))
    precision: str = key(choice("float32", "bfloat16"))


@dataclass(frozen=True, kw_only=True)
class Imitating(OfflineAlgo):
    """What an algorithm has that predicts the actions of saved episodes."""

    context: int = key(whole(1))
    packed: bool = key(flag())
    recompute: bool = key(flag())
    compile: str = key(choice("auto", "off"))


@dataclass(frozen=True, kw_only=True)
class Dt(Imitating):
    """The decision transformer."""

    target_return: float | None = key(or_null(number()))


@dataclass(frozen=True, kw_only=True)
class PuzzleAlgo(OfflineAlgo):
    """Answers grid puzzles."""


@dataclass(frozen=True, kw_only=True)
class Bc(Imitating):
    """Behaviour cloning."""

    held_out: float = key(number("0 <= held_out < 1", lambda x: 0 <= x < 1))


@dataclass(frozen=True, kw_only=True)
class Replay(ConfigGroup):
    """Every stored step is equally likely."""

    prefix = "replay."
    sampler: str = key(choice("uniform", "weighted"))
    capacity: int = key(whole(1))
    page_steps: int = key(whole(1, 32768))
    tier: str = key(choice("host", "shared", "pinned", "device"))
    prefetch: int = key(whole(0, 1024))


@dataclass(frozen=True, kw_only=True)
class Prioritized(Replay):
    """Steps are drawn by the size of their TD error."""

    alpha: float = key(number("0 <= alpha <= 4", lambda x: 0 <= x <= 4))
    beta: float = key(number("0 <= beta <= 1", lambda x: 0 <= x <= 1))
    beta_steps: int = key(whole(1))


@dataclass(frozen=True, kw_only=True)
class Model(ConfigGroup):
    prefix = "model."
    name: str = key(choice("mlp", "cnn", "agents", "transformer", "pixels"))


@dataclass(frozen=True, kw_only=True)
class Dense(Model):
    """Layers one behind the other, for flat observations (mlp) or frames (cnn)."""

    hidden: tuple[int, ...] = key(
        tuple_of(whole(1), "a list of layer sizes, each 1 or more, as in [256,256]")
    )


@dataclass(frozen=True, kw_only=True)
class Attending(Model):
    """Blocks of attention."""

    width: int = key(whole(1))
    layers: int = key(whole(1))
    heads: int = key(whole(1))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            refuse("model.heads", self.heads, f"a number that divides model.width={self.width}")


@dataclass(frozen=True, kw_only=True)
class Transformer(Attending):
    """Over the steps of an episode."""

    dropout: float = key(DROPOUT)
    max_steps: int = key(whole(1))


@dataclass(frozen=True, kw_only=True)
class Pixels(Attending):
    """Over the cells of grids."""

    dropout: float = key(DROPOUT)


@dataclass(frozen=True, kw_only=True)
class Agents(Attending):
    """Over the agents of a team."""


@dataclass(frozen=True, kw_only=True)
class Optim(ConfigGroup):
    prefix = "optim."
    name: str = key(choice("adam", "adamw"))
    lr: float = key(number("lr > 0", lambda x: x > 0))
    betas: tuple[float, float] = key(
        tuple_of(
            number("", lambda x: 0 <= x < 1),
            "two numbers, each 0 <= beta < 1, as in [0.9,0.999]",
            length=2,
        )
    )
    eps: float = key(number("eps > 0", lambda x: x > 0))
    weight_decay: float = key(number("weight_decay >= 0", lambda x: x >= 0))


@dataclass(frozen=True, kw_only=True)
class Logger(ConfigGroup):
    """Files in the run's folder."""

    prefix = "logger."
    name: str = key(choice("files", "wandb"))
    writers: tuple[str, ...] = key(
        tuple_of(
            choice("csv", "tensorboard"),
            "a list of csv, tensorboard or both; logger=wandb has Weights & Biases",
        )
    )


@dataclass(frozen=True, kw_only=True)
class Wandb(Logger):
    """Weights & Biases, beside files."""

    writers: tuple[str, ...] = key(
        tuple_of(choice("csv", "tensorboard", "wandb"), "a list of csv, tensorboard and wandb")
    )
    project: str = key(text("the name of a project: letters, digits and . _ -", NAME))
    mode: str = key(choice("offline", "online"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if "wandb" in self.writers and "csv" not in self.writers:
            allowed = "csv, too: by its rows what wandb has is completed when a run goes on"
            refuse("logger.writers", list(self.writers), allowed)
