"""What ranks must agree on: where one of them differs, all raise the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numbered
import numpy as np

import gear
from distributed.content import SCHEMA
from distributed.participant import Participant

OTHER_SCHEMA = gear.Schema([*SCHEMA.columns[:-1], gear.Column("done", (), "uint8")])
# What the last rank says, beside what the others say.
BUFFERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "schema": ({"schema": OTHER_SCHEMA}, {"schema": SCHEMA}),
    "page_steps": ({"page_steps": 8}, {"page_steps": 4}),
}
LOADERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "batch_size": ({"batch_size": 6}, {"batch_size": 5}),
    "seed": ({"seed": 6}, {"seed": 5}),
    "sampler": ({"sampler": gear.Weighted()}, {"sampler": gear.Uniform()}),
    "alpha": ({"sampler": gear.Weighted(alpha=0.5)}, {"sampler": gear.Weighted(alpha=0.6)}),
    "unit": ({"sampler": gear.Uniform(unit="episode")}, {"sampler": gear.Uniform()}),
    "locality": ({"locality": "off"}, {"locality": "first"}),
    "outputs": ({"outputs": {"obs": gear.Step(1)}}, {"outputs": {"obs": gear.Step()}}),
    "packed": ({"packed": True}, {"packed": False}),
    "prefetch": ({"prefetch": 3}, {"prefetch": 2}),
}
# The same, but what the last rank says is wrong by itself; the word that the message has.
Wrong = dict[str, tuple[str, dict[str, Any]]]
WRONG_BUFFERS: Wrong = {
    "buffer-schema": ("schema", {"schema": [("obs", (), "float32")]}),
    "buffer-capacity": ("capacity", {"capacity": 0}),
    "buffer-capacity-below-a-page": ("capacity", {"capacity": 3}),
    "buffer-capacity-fraction": ("capacity", {"capacity": 64.5}),
    "buffer-page_steps": ("page_steps", {"page_steps": -1}),
    "buffer-tier": ("tier", {"tier": "disk"}),
    "buffer-tier-number": ("tier", {"tier": 3}),
    "buffer-name": ("name", {"name": "a/b", "tier": "shared"}),
    "buffer-name-number": ("name", {"name": 3, "tier": "shared"}),
    "buffer-evict": ("evict", {"evict": "random"}),
    "buffer-evict-number": ("evict", {"evict": 3}),
    "buffer-max_times_sampled": ("max_times_sampled", {"max_times_sampled": 0}),
    "buffer-rate_limit": ("rate_limit", {"rate_limit": 3.0}),
    "buffer-rate_limit-text": ("samples_per_insert", {"rate_limit": gear.RateLimit("a")}),
    "buffer-rate_limit-slack": ("slack", {"rate_limit": gear.RateLimit(8.0, slack="a")}),
    "buffer-rate_limit-min_steps": ("min_steps", {"rate_limit": gear.RateLimit(1.0, 0.5)}),
}
WRONG_LOADERS: Wrong = {
    "loader-batch_size": ("batch_size", {"batch_size": 0}),
    "loader-batch_size-fraction": ("batch_size", {"batch_size": 2.5}),
    "loader-sampler": ("sampler", {"sampler": "uniform"}),
    "loader-alpha": ("alpha", {"sampler": gear.Weighted(alpha="a")}),
    "loader-beta": ("beta", {"sampler": gear.Weighted(beta=-1.0)}),
    "loader-shuffle": ("shuffle", {"sampler": gear.Sequential(shuffle="yes")}),
    "loader-outputs": ("outputs", {"outputs": ["obs"]}),
    "loader-output": ("obs", {"outputs": {"obs": 3}}),
    "loader-output-name": ("output 3", {"outputs": {3: gear.Step()}}),
    "loader-column": ("column", {"outputs": {"x": gear.Step(column="column")}}),
    "loader-column-number": ("column", {"outputs": {"x": gear.Step(column=7)}}),
    "loader-window": ("window", {"outputs": {"obs": gear.Window(2, 2)}}),
    "loader-start": ("start", {"outputs": {"obs": gear.Window("0", 1)}}),
    "loader-offset": ("offset", {"outputs": {"obs": gear.Step("1")}}),
    "loader-pad": ("pad", {"outputs": {"obs": gear.Window(0, 1, pad="left")}}),
    "loader-dtype": ("dtype", {"outputs": {"obs": gear.Step(dtype="float8")}}),
    "loader-scale": ("scale", {"outputs": {"obs": gear.Step(scale="a")}}),
    "loader-packed": ("packed", {"packed": "no"}),
    "loader-device": ("device", {"device": "tpu"}),
    "loader-path": ("path", {"path": "fast"}),
    "loader-framework": ("framework", {"framework": "tensorflow"}),
    "loader-prefetch": ("prefetch", {"prefetch": -1}),
    "loader-seed": ("seed", {"seed": "a"}),
    "loader-timeout_s": ("timeout_s", {"timeout_s": "soon"}),
    "loader-locality": ("locality", {"locality": "near"}),
    "loader-nccl": ("nccl", {"nccl": "yes"}),
}
WRONG_LOADS: Wrong = {
    "load-path": ("path", {"path": "elsewhere"}),
    "load-tier": ("tier", {"tier": "disk"}),
    "load-name": ("name", {"name": 3, "tier": "shared"}),
}
WRONG = WRONG_BUFFERS | WRONG_LOADERS | WRONG_LOADS
# Of one rank's own calls: the others go on.
WRONG_WRITERS: Wrong = {
    "writer-episode": ("episode", {"episode": 77}),
    "writer-episode-text": ("episode", {"episode": "a"}),
    "writer-timeout_s": ("timeout_s", {"timeout_s": -1.0}),
}


Attempts = dict[str, Callable[[Participant], object]]


def wrong(arguments: Wrong, make: Callable[..., object]) -> Attempts:
    return {
        name: lambda me, of_last=of_last: make(me, of_last if me.rank == me.size - 1 else {})
        for name, (_, of_last) in arguments.items()
    }


def differing(pairs: dict[str, tuple[Any, Any]], make: Callable[..., object]) -> Attempts:
    return {
        name: lambda me, pair=pair: make(me, pair[me.rank != me.size - 1])
        for name, pair in pairs.items()
    }


def attempts() -> dict[str, Attempts]:
    """By program. Those of a program that end differently on two ranks end it."""
    return {
        "refuse_buffers": differing(BUFFERS, make_buffer),
        "refuse_loaders": differing(LOADERS, make_loader),
        "refuse_wrong_buffers": wrong(WRONG_BUFFERS, make_buffer),
        "refuse_wrong_loaders": wrong(WRONG_LOADERS, make_loader),
        "refuse_wrong_loads": wrong(WRONG_LOADS, save_and_load),
        "refuse_wrong_writers": wrong(WRONG_WRITERS, make_writer),
        "refuse_closed": {"closed-loader": loader_of_closed, "closed-save": save_closed},
        "refuse_draws": {
            "empty": sample_nothing,
            "by_chance": lambda me: make_loader(me, {}, max_times_sampled=2),
        },
        # Of no rank; of the last rank, but beyond its pages; a priority that no rank would take.
        "refuse_updates": {
            "owner": lambda me: update(me, 4000, 0, 1.0),
            "slot": lambda me: update(me, me.size - 1, 1 << 31, 1.0),
            "priority": lambda me: update(me, me.size - 1, 0, float("nan")),
        },
        "refuse_loads": {
            "mixed": load_mixed,
            "missing": lambda me: gear.ReplayBuffer.load("/nowhere/replay", group=me.group()),
        },
        "refuse_saves": {
            "unwritable": lambda me: save(me, "/dev/null/replay"),
            "save-path": lambda me: save(me, f"/nowhere/{min(me.rank, 1)}"),
            "save-path-number": lambda me: save(me, 3.5 if me.rank == me.size - 1 else "/nowhere"),
        },
        "refuse_states": {
            "state": lambda me: restore(me, lambda own: {"version": 0}),
            "state-list": lambda me: restore(me, list),
            "state-incomplete": lambda me: restore(me, without_draws),
        },
    }


# One rank has nobody to differ from.
NEED_OTHERS = {*BUFFERS, *LOADERS, "by_chance"}
NEED_OTHERS |= {"save-path", "load-path", "buffer-name", "buffer-name-number"}


def play_refusals(program: str, me: Participant) -> None:
    for name, attempt in attempts()[program].items():
        if me.size == 1 and name in NEED_OTHERS:
            continue
        try:
            attempt(me)
            me.record(name, ["nothing", ""])
        except (gear.GearError, TypeError, ValueError) as error:
            me.record(name, [type(error).__name__, str(error)])
        # All are still in step, and the group is good for more.
        assert me.group().exchange(name) == [name] * me.size


def make_buffer(me: Participant, arguments: dict[str, Any]) -> None:
    me.buffer(**{"schema": SCHEMA, "capacity": 64, "page_steps": 4} | arguments).close()


def make_loader(me: Participant, arguments: dict[str, Any], **more: Any) -> None:
    with me.buffer(SCHEMA, 64, page_steps=4, **more) as buffer:
        with buffer.writer() as writer:
            writer.extend(**numbered.rows(np.arange(1, 10)))
        me.loader(buffer, **{"batch_size": 5} | arguments).close()


def sample_nothing(me: Participant) -> None:
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer, me.loader(buffer, 5) as loader:
        next(loader)


def update(me: Participant, owner: int, slot: int, priority: float) -> None:
    """What is wrong is said where it is given, and harms no other rank."""
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with buffer.writer() as writer:
            writer.extend(**numbered.rows(np.arange(1, 10)))
        with me.loader(buffer, 5) as loader:
            next(loader)
            try:
                buffer.update(np.array([owner << 50 | slot]), np.array([priority]))
            finally:
                for _ in range(4):
                    next(loader)


def make_writer(me: Participant, arguments: dict[str, Any]) -> None:
    """What one rank's own call refuses is no matter of the others."""
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        try:
            buffer.writer(**arguments).close()
        finally:
            me.group().barrier()


def loader_of_closed(me: Participant) -> None:
    buffer = me.buffer(SCHEMA, 64, page_steps=4)
    if me.rank == me.size - 1:
        buffer.close()
    me.loader(buffer, 5)


def save_closed(me: Participant) -> None:
    buffer = me.buffer(SCHEMA, 64, page_steps=4)
    if me.rank == me.size - 1:
        buffer.close()
    buffer.save(me.shared_folder("closed"))


def save_and_load(me: Participant, arguments: dict[str, Any]) -> None:
    path = me.shared_folder("saved")
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        buffer.save(path)
    gear.ReplayBuffer.load(**{"path": path, "group": me.group()} | arguments).close()


def restore(me: Participant, spoil: Callable[[dict[str, Any]], Any]) -> None:
    """The last rank gives what no loader's state is."""
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        with buffer.writer() as writer:
            writer.extend(**numbered.rows(np.arange(1, 10)))
        with me.loader(buffer, 5) as loader:
            state = loader.state_dict()
            loader.load_state_dict(spoil(state) if me.rank == me.size - 1 else state)


def without_draws(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key != "draws"}


def save(me: Participant, path: str) -> None:
    with me.buffer(SCHEMA, 64, page_steps=4) as buffer:
        buffer.save(path)


def load_mixed(me: Participant) -> None:
    """Parts of two saves in one folder."""
    path = me.shared_folder("mixed")
    if me.rank == 0:
        for part in ("rank-00000-of-00002", "rank-00000-of-00003"):
            (path / part).mkdir(parents=True)
    me.group().barrier()
    gear.ReplayBuffer.load(path, group=me.group()).close()
