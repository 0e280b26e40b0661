"""Groups of any size with any content, sampler and windows: what one rank gets, to the bit."""

from __future__ import annotations

import threading
from dataclasses import replace
from tempfile import TemporaryDirectory

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import gear
from distributed import checks
from distributed.content import SCHEMA, Story
from distributed.launch import Arrays
from distributed.participant import Participant, make_groups
from distributed.programs import play_scenario
from distributed.scenarios import Outputs, Scenario
from distributed.single_rank import AllRanks
from gear.samplers import Fifo, Lifo, Sampler, Sequential, TopK, Uniform, Weighted

LONGEST = 13


@st.composite
def samplers(draw: st.DrawFn) -> Sampler:
    unit = draw(st.sampled_from(["step", "episode"]))
    kind = draw(st.sampled_from([Uniform, Weighted, Sequential, Fifo, Lifo, TopK]))
    if kind is Weighted:
        exponents = st.sampled_from([0.0, 0.3, 0.6, 1.0])
        return Weighted(alpha=draw(exponents), beta=draw(exponents), unit=unit)
    if kind is Sequential:
        return Sequential(shuffle=draw(st.booleans()), drop_last=draw(st.booleans()), unit=unit)
    return kind(unit=unit)


@st.composite
def outputs(draw: st.DrawFn) -> Outputs:
    found: Outputs = {"anchor": gear.Step(column="number")}
    for i in range(draw(st.integers(0, 4))):
        column = draw(st.sampled_from(SCHEMA.columns)).name
        start = draw(st.integers(-2 * LONGEST, 5))
        stop = draw(st.integers(start + 1, 8))
        pad = draw(st.sampled_from(["both", "head", "tail", "no time axis"]))
        if pad == "no time axis":
            found[f"out{i}"] = gear.Step(start, column)
        else:
            found[f"out{i}"] = gear.Window(start, stop, column, pad)
        if draw(st.booleans()):
            kind = draw(st.sampled_from([gear.Terminated, gear.IsLast]))
            found[f"out{i}"] = kind(replace(found[f"out{i}"], column=None))
    return found


@st.composite
def scenarios(draw: st.DrawFn, size: int) -> Scenario:
    sampler = draw(samplers())
    steps = st.one_of(st.just(0), st.integers(1, 10), st.integers(1, 90))
    page_steps = draw(st.integers(1, 9))
    return Scenario(
        "random",
        sampler,
        draw(outputs()),
        batch_size=draw(st.integers(1, 20)),
        batches=draw(st.integers(1, 5)),
        packed=draw(st.booleans()),
        tier=draw(st.sampled_from(["host", "shared"])),
        locality=draw(st.sampled_from(["first", "off"])),
        several_nodes=draw(st.booleans()),
        story=Story(
            steps=tuple(draw(st.lists(steps, min_size=size, max_size=size))),
            more=0 if isinstance(sampler, Sequential) else draw(st.sampled_from([0, 8, 30])),
            longest=draw(st.integers(1, LONGEST)),
            open=draw(st.booleans()),
        ),
        capacity=draw(st.integers(100, 200)),
        page_steps=page_steps,
        evict=draw(st.sampled_from(["fifo", "lifo", "lowest_priority"])),
        prefetch=draw(st.integers(0, 3)),
        update=draw(st.booleans()),
        seed=draw(st.integers(0, 99)),
    )


def play(scenario: Scenario, size: int) -> list[Arrays]:
    """What the ranks wrote down, which were threads."""
    records: dict[int, Arrays] = {}
    errors: list[Exception] = []
    with TemporaryDirectory() as folder:
        job = {"implementation": "loopback", "size": size, "folder": folder}
        groups = make_groups({**job, "group_timeout_s": 20})

        def run(me: Participant) -> None:
            try:
                play_scenario(scenario, me)
                records[me.rank] = me.records
            except (gear.GearError, AssertionError, TimeoutError) as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(Participant(job, both),)) for both in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return [records[rank] for rank in range(size)]


def windows(scenario: Scenario) -> list[tuple[int, int]]:
    """The steps that each output must know of: whether one is the last, the next one tells."""
    reach = []
    for output in scenario.outputs.values():
        steps = output.steps if isinstance(output, gear.Derived) else output
        over = isinstance(output, gear.Terminated | gear.IsLast)
        if isinstance(steps, gear.Step):
            steps = gear.Window(steps.offset, steps.offset + 1)
        reach.append((steps.start, steps.stop + over))
    return reach


def can_be_played(scenario: Scenario, size: int) -> bool:
    """Something is offered, and one rank with all of it would take the loader: it refuses windows
    that lie further from any anchor than it has room."""
    ranks = AllRanks(scenario, size)
    ranks.write()
    for shard in ranks.shards:
        shard.model.require_lookahead(windows(scenario))
    offered = sum(len(shard.model.anchors(scenario.sampler.unit)) for shard in ranks.shards)
    steps = sum(len(shard.model) for shard in ranks.shards)
    furthest = max(max(-start, stop - 1) for start, stop in windows(scenario))
    return offered > 0 and steps > furthest


@settings(max_examples=60)
@given(data=st.data(), size=st.integers(1, 5))
def test_random_groups(data: st.DataObject, size: int) -> None:
    scenario = data.draw(scenarios(size))
    assume(can_be_played(scenario, size))
    ranks = play(scenario, size)
    checks.check_draws(scenario, ranks)
    checks.check_batches(scenario, ranks)
    checks.check_ids(scenario, ranks)
    checks.check_what_travels(scenario, ranks, padding=False, path="messages")
