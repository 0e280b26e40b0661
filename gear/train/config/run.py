"""The whole configuration of a run, and the part of it that is needed before ranks meet."""

# ruff: noqa: RUF009  # key and group make fields
from __future__ import annotations

from dataclasses import dataclass, replace

from gear.train.config.checks import ConfigGroup, flag, group, key, or_null, refuse, text, whole
from gear.train.config.groups import (
    ActingAlgo,
    Agents,
    Bc,
    Data,
    Ddp,
    Deepspeed,
    Dense,
    Dqn,
    Dt,
    Env,
    Fsdp2,
    Horovod,
    Imitating,
    Iql,
    Logger,
    Mat,
    Optim,
    Pixels,
    Prioritized,
    PuzzleAlgo,
    Puzzles,
    Replay,
    Sac,
    Single,
    Transformer,
    Wandb,
)

# By algorithm, the models that fit it.
MODELS = {
    "sac": ("mlp", "cnn"),
    "dqn": ("mlp", "cnn"),
    "mat": ("agents",),
    "iql": ("mlp",),
    "dt": ("transformer",),
    "bc": ("mlp", "transformer"),
    "puzzles": ("pixels",),
}


@dataclass(frozen=True, kw_only=True)
class Place(ConfigGroup):
    """What a rank has to know before it meets the others.

    Attributes:
        rank, world_size: set by hand where no launcher sets them; both or neither.
        device: as it is written; whether it is here is checked when ranks start.
    """

    dist: Single | Ddp = group(
        "name", single=Single, ddp=Ddp, fsdp2=Fsdp2, deepspeed=Deepspeed, horovod=Horovod
    )
    rank: int | None = key(or_null(whole(0)))
    world_size: int | None = key(or_null(whole(1)))
    device: str = key(text("cpu, cuda, or one GPU as in cuda:0", r"cpu|cuda(:\d{1,4})?"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is None and self.world_size is None:
            return
        if self.world_size is None:
            refuse("world_size", None, "the number of ranks, a whole number, because rank is set")
        if self.rank is None or self.rank >= self.world_size:
            refuse("rank", self.rank, f"0 to {self.world_size - 1}, below world_size")


@dataclass(frozen=True, kw_only=True)
class Config(Place):
    """Everything. `yaml` is the same as text, as a run writes it down: without rank, world_size."""

    seed: int = key(whole(0))
    deterministic: bool = key(flag())
    threads: int = key(whole(1, 1024))
    total_steps: int = key(whole(1))
    checkpoint: str | None = key(
        or_null(text("auto, or the directory of a run or of one of its checkpoints"))
    )
    trust: bool = key(flag())
    checkpoint_every: int = key(whole(0))
    keep_checkpoints: int = key(whole(1))
    eval_every: int = key(whole(0))
    eval_episodes: int = key(whole(1))
    env: Env = group(env=Env)
    data: Data = group("name", none=Data, saved=Data, puzzles=Puzzles)
    algo: Sac | Dqn | Iql | Mat | Dt | Bc | PuzzleAlgo = group(
        "name", sac=Sac, dqn=Dqn, iql=Iql, mat=Mat, dt=Dt, bc=Bc, puzzles=PuzzleAlgo
    )
    replay: Replay = group("sampler", uniform=Replay, weighted=Prioritized)
    model: Dense | Agents | Transformer | Pixels = group(
        "name", mlp=Dense, cnn=Dense, agents=Agents, transformer=Transformer, pixels=Pixels
    )
    optim: Optim = group(optim=Optim)
    logger: Logger = group("name", files=Logger, wandb=Wandb)
    yaml: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algo.batch_size > self.replay.capacity:
            allowed = f"at most replay.capacity={self.replay.capacity}, or a larger capacity"
            refuse("algo.batch_size", self.algo.batch_size, allowed)
        self._check_that_groups_fit()
        self.check_ranks(1)

    def check_ranks(self, num_ranks: int) -> None:
        """Refuses what so many ranks cannot do."""
        if isinstance(self.dist, Ddp) and num_ranks > 1:
            self._check_learners(self.dist, num_ranks)
        if not isinstance(self.algo, ActingAlgo):
            return
        n_step, starts = self.algo.n_step, self.algo.learning_starts
        envs = self.env.num_envs
        if starts <= n_step * num_ranks * envs:
            ranks = f" times {num_ranks} ranks" if num_ranks > 1 else ""
            each = f" times env.num_envs={envs}" if envs > 1 else ""
            allowed = (
                f"more than algo.n_step={n_step}{ranks}{each}, so that a whole transition is stored"
            )
            refuse("algo.learning_starts", starts, allowed)

    def over(self, ranks: int, of: int) -> Config:
        """This configuration, written for `of` ranks, for `ranks` that learn the same way: with as
        many items in the batch of all, and as much replay in all. `yaml` stays as it is."""
        capacity = -(-self.replay.capacity * of // ranks)
        replay = replace(self.replay, capacity=capacity)
        return replace(self, algo=self.algo.over(ranks, of), replay=replay)

    def _check_that_groups_fit(self) -> None:
        """Saved data, what learns from it and its model go together."""
        offline, name = isinstance(self.algo, Imitating), self.algo.name
        if offline and self.data.path is None:
            refuse(
                "data.path", None, f"data=saved data.path=DIR: algo={name} learns from saved data"
            )
        puzzles = isinstance(self.algo, PuzzleAlgo)
        if puzzles != isinstance(self.data, Puzzles):
            allowed = "puzzles for algo=puzzles" if puzzles else f"none or saved for algo={name}"
            refuse("data.name", self.data.name, f"{allowed}, as in data=...")
        if not (offline or puzzles) and self.data.path is not None:
            refuse(
                "data.path",
                self.data.path,
                f"null, as algo={name} learns from what it stores itself, or algo=dt, algo=bc",
            )
        if self.model.name not in MODELS[name]:
            allowed = " or ".join(MODELS[name]).replace("former", "former, as in model=dt_1m")
            refuse("model.name", self.model.name, f"{allowed}, which fits algo={name}")

    def _check_learners(self, dist: Ddp, num_ranks: int) -> None:
        learners = dist.learners or num_ranks
        if learners > num_ranks:
            refuse("dist.learners", learners, f"1 to {num_ranks}, the number of ranks, or null")
        if learners >= num_ranks:
            return
        if dist.name != "ddp":
            refuse("dist.learners", learners, f"null with dist={dist.name}, or dist=ddp")
        if not isinstance(self.algo, ActingAlgo):
            refuse(
                "dist.learners", learners, f"null with algo={self.algo.name}, which does not act"
            )
        if self.algo.policy_every > 1:
            allowed = (
                "1 with dist.learners: ranks that only act follow every dist.exchange_every steps"
            )
            refuse("algo.policy_every", self.algo.policy_every, allowed)
        if dist.locality == "first":
            allowed = (
                f"off with dist.learners={learners} of {num_ranks} ranks: with first, ranks that "
                "only act would be given what they store, and nobody learned from it"
            )
            refuse("dist.locality", dist.locality, allowed)
