"""Values that are allowed each, and that cannot work together."""

from __future__ import annotations

from typing import NoReturn

import gear
from gear.train.config.checks import refuse
from gear.train.config.groups import (
    ActingAlgo,
    Ddp,
    Deepspeed,
    Dense,
    Fsdp2,
    Horovod,
    Imitating,
    Wandb,
)
from gear.train.config.run import Config


def check_pairs(config: Config, num_ranks: int) -> None:
    """Raises InvalidArgument, naming both, for values by which a run of so many ranks would end in
    its middle, learn nothing, or not do what one of them says.

    Of a run that is to start: what plays a network that has learned needs none of this.
    """
    config.check_ranks(num_ranks)
    if isinstance(config.algo, ActingAlgo):
        _check_room(config, config.algo)
        _check_updates(config, config.algo, num_ranks)
    if isinstance(config.algo, Imitating) and isinstance(config.model, Dense):
        _check_reactive(config.algo)
    if isinstance(config.dist, Ddp):
        _check_ways(config, config.dist)
    if isinstance(config.dist, Deepspeed):
        _check_offload(config.dist)
    if isinstance(config.logger, Wandb) and "wandb" not in config.logger.writers:
        allowed = "a list with wandb for logger=wandb, or logger=csv or another"
        refuse("logger.writers", f"[{','.join(config.logger.writers)}]", allowed)


def _check_room(config: Config, algo: ActingAlgo) -> None:
    """Every open episode keeps its last page until that is full. The others must be enough for one
    episode, be they spread as they may, to hold a whole transition, n_step + 1 rows; and one may be
    free, since an ended episode whose last page holds its closing step alone gives up two."""
    envs, page, n_step = config.env.num_envs, config.replay.page_steps, algo.n_step
    least = (envs + envs * (n_step - 1) // page + 2) * page
    # The last page counts whole.
    if -(-config.replay.capacity // page) * page < least:
        allowed = (
            f"at least {least}, since each open episode of env.num_envs={envs} keeps a page of "
            f"replay.page_steps={page} and there must be a transition of algo.n_step={n_step} to "
            "draw; or fewer environments, or shorter pages"
        )
        refuse("replay.capacity", config.replay.capacity, allowed)


def _check_updates(config: Config, algo: ActingAlgo, num_ranks: int) -> None:
    """At least one update is due, as `Acting.step` counts them."""
    total, starts, envs = config.total_steps, algo.learning_starts, config.env.num_envs
    turn = num_ranks * envs  # environment steps of one step of every environment
    last = -(-total // turn)
    first = max(1, -(-starts // turn))  # the first turn after which updates may be due
    if first > last:
        allowed = f"at least algo.learning_starts={starts}, before which nothing is learned"
        refuse("total_steps", total, f"{allowed}, or a smaller algo.learning_starts")
    if last * envs // algo.train_every == (first - 1) * envs // algo.train_every:
        allowed = (
            f"fewer steps: each rank takes {last * envs} in total_steps={total}, and between "
            f"algo.learning_starts={starts} and their end no update is due"
        )
        refuse("algo.train_every", algo.train_every, allowed)


def _check_reactive(algo: Imitating) -> None:
    if algo.recompute:
        refuse("algo.recompute", True, "false with model=mlp, which has no blocks to compute again")
    if algo.precision != "float32":
        allowed = "float32 with model=mlp, which computes in nothing else, or model=dt_1m"
        refuse("algo.precision", algo.precision, allowed)


def _check_ways(config: Config, dist: Ddp) -> None:
    acts, name = isinstance(config.algo, ActingAlgo), config.algo.name
    if acts and isinstance(dist, (Fsdp2, Deepspeed)):
        _refuse_several_losses(dist.name, name)
    if acts and isinstance(dist, Horovod) and dist.compression != "none":
        allowed = f"none with algo={name}: it is for models with one loss, as algo=dt has"
        refuse("dist.compression", dist.compression, allowed)
    if dist.transport == "nccl" and config.device == "cpu":
        refuse("dist.transport", "nccl", "auto or host with device=cpu, or device=cuda")


def _refuse_several_losses(dist: str, algo: str) -> NoReturn:
    raise gear.InvalidArgument(
        f"[train] dist={dist} trains models with one loss, as algo=dt has, and algo={algo} has "
        "several: use dist=ddp"
    )


def _check_offload(dist: Deepspeed) -> None:
    """DeepSpeed leaves where it is what its stage does not share out, and says nothing."""
    zero = dist.config["zero_optimization"]
    for key, least in (("offload_optimizer", 1), ("offload_param", 3)):
        wish = zero.get(key)
        place = wish.get("device", "none") if isinstance(wish, dict) else "none"
        if place not in (None, "none") and zero["stage"] < least:
            allowed = f"none, or dist.config.zero_optimization.stage={least}"
            allowed += "" if least == 3 else " or more"
            refuse(f"dist.config.zero_optimization.{key}.device", place, allowed)
