"""Environments whose arrays lie on a GPU: what these store is what the same store from the host."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import gear

torch = pytest.importorskip("torch")

COUNT = 7
# Rows of 1, 3, 6, 8, 20 and 64 bytes: every width that a GPU may move them by.
SCHEMA = gear.Schema(
    [
        gear.Column("obs", (4, 4), "float32"),
        gear.Column("state", (5,), "float32"),
        gear.Column("pixel", (3,), "uint8"),
        gear.Column("half", (3,), "float16"),
        gear.Column("action", (), "int64"),
        gear.Column("truncated", (), "bool"),
    ]
)
MODES = ["next_step", "same_step", "disabled"]


def drawn(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A call of made-up environments; flags are rare enough for episodes of several pages."""
    return {
        "obs": rng.standard_normal((COUNT, 4, 4)).astype(np.float32),
        "state": rng.standard_normal((COUNT, 5)).astype(np.float32),
        "pixel": rng.integers(0, 256, (COUNT, 3)).astype(np.uint8),
        "half": rng.standard_normal((COUNT, 3)).astype(np.float16),
        "action": rng.integers(0, 1 << 40, COUNT),
        "terminated": rng.random(COUNT) < 0.06,
        "truncated": rng.random(COUNT) < 0.06,
    }


def stored(buffer: gear.ReplayBuffer) -> list[tuple[Any, ...]]:
    """Every stored step with what follows it, bit by bit."""
    outputs: dict[str, Any] = {c.name: gear.Step(0, c.name) for c in SCHEMA.columns}
    outputs |= {f"next {c.name}": gear.Step(1, c.name) for c in SCHEMA.columns}
    found: list[tuple[Any, ...]] = []
    for episode in buffer.episodes():
        head = (episode.uid, episode.state, episode.begin, episode.end)
        if episode.begin == episode.end:
            found.append(head)
            continue
        batch = buffer.collect(np.asarray(episode.ids), outputs=outputs, framework="numpy")
        values = tuple(np.ascontiguousarray(batch[name]).tobytes() for name in outputs)
        priorities = tuple(buffer.priorities(np.asarray(episode.ids)))
        found.append((*head, *values, priorities))
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("flags", ["gpu", "cpu"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tier", ["device", "host", "pinned"])
def test_what_is_stored(gpu, tier: str, mode: str, flags: str, masked: bool) -> None:
    """The arrays are overwritten at once, as simulators do that have one buffer an observation."""
    rng = np.random.default_rng(5)
    place = gpu.place(tier)
    with (
        place.buffer(SCHEMA, 600, page_steps=4) as buffer,
        gear.ReplayBuffer(SCHEMA, 600, page_steps=4) as wanted,
    ):
        writer = buffer.writer(COUNT, autoreset=mode)
        by_host = wanted.writer(COUNT, autoreset=mode)
        shown = {
            name: torch.from_numpy(values).to(gpu.device) for name, values in drawn(rng).items()
        }
        last = torch.empty(COUNT, 4, 4, device=gpu.device)
        for call in range(400):
            given = drawn(rng)
            priority = rng.random(COUNT).astype(np.float32) if call % 3 == 0 else None
            mask = rng.random(COUNT) < 0.8 if masked else None
            final = rng.standard_normal((COUNT, 4, 4)).astype(np.float32)
            for name, values in given.items():
                shown[name].copy_(torch.from_numpy(values))
            last.copy_(torch.from_numpy(final))
            on_gpu: dict[str, Any] = dict(shown)
            if flags == "cpu":
                on_gpu |= {name: given[name] for name in ("terminated", "truncated")}
            else:
                # The mask and priorities beside them, now and then.
                priority_there = priority is not None and call % 2 == 0
                on_gpu["priority"] = (
                    torch.from_numpy(priority).to(gpu.device) if priority_there else priority
                )
            on_gpu.setdefault("priority", priority)
            on_gpu["mask"] = mask
            if masked and flags == "gpu" and call % 2 == 0:
                on_gpu["mask"] = torch.from_numpy(mask).to(gpu.device)
            closes = mode != "next_step" and call % 5 != 0
            writer.append(**on_gpu, final={"obs": last} if closes else None)
            for tensor in (*shown.values(), last):
                tensor.zero_()
            by_host.append(
                **given, priority=priority, mask=mask, final={"obs": final} if closes else None
            )
        writer.flush()
        assert stored(buffer) == stored(wanted)
        writer.end_episode(final={"obs": last})
        by_host.end_episode(final={"obs": np.zeros((COUNT, 4, 4), np.float32)})
        assert stored(buffer) == stored(wanted)
        writer.close()
        by_host.close()


def given_on(device: str, seed: int = 0) -> dict[str, Any]:
    return {
        name: torch.from_numpy(values).to(device)
        for name, values in drawn(np.random.default_rng(seed)).items()
    }


def test_some_columns_lie_on_the_gpu(gpu) -> None:
    rng = np.random.default_rng(1)
    with (
        gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer,
        gear.ReplayBuffer(SCHEMA, 400, page_steps=4) as wanted,
    ):
        writer = buffer.writer(COUNT, autoreset="next_step")
        by_host = wanted.writer(COUNT, autoreset="next_step")
        for call in range(200):
            given = drawn(rng)
            by_host.append(**given)
            there = {
                name: torch.from_numpy(values).to(gpu.device) if (call >> i) & 1 else values.copy()
                for i, (name, values) in enumerate(given.items())
            }
            writer.append(**there)
            for values in there.values():  # a call that is put off has what it was given
                values[...] = 0
        writer.close()
        by_host.close()
        assert stored(buffer) == stored(wanted)


def test_views_and_other_streams(gpu) -> None:
    """A transposed view, and arrays of a stream that is behind."""
    if gpu.rehearsal:
        pytest.skip("host memory has no streams")
    with (
        gpu.place("device").buffer(SCHEMA, 100, page_steps=4) as buffer,
        gear.ReplayBuffer(SCHEMA, 100, page_steps=4) as wanted,
    ):
        writer = buffer.writer(COUNT, autoreset="same_step")
        by_host = wanted.writer(COUNT, autoreset="same_step")
        beside = torch.cuda.Stream()
        for seed in range(8):
            given = given_on("cpu", seed)
            by_host.append(**given)
            with torch.cuda.stream(beside) if seed % 2 else torch.cuda.stream(None):
                torch.cuda._sleep(10_000_000)
                there = {name: values.to(gpu.device) for name, values in given.items()}
                there["obs"] = there["obs"].transpose(1, 2).contiguous().transpose(1, 2)
                writer.append(**there)
                for values in there.values():
                    values.zero_()
        writer.close()
        by_host.close()
        assert stored(buffer) == stored(wanted)


@pytest.mark.parametrize("flags", ["gpu", "cpu"])
def test_nobody_waits_for_the_environments(gpu, flags: str) -> None:
    """A call returns before the kernels that make its arrays have run."""
    if gpu.rehearsal:
        pytest.skip("host memory is never behind")
    with gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer:
        writer = buffer.writer(COUNT, autoreset="same_step")
        loader = buffer.loader(4, device="cuda", outputs={"obs": gear.Step(0, "obs")})
        given = given_on("cuda")
        if flags == "cpu":
            given |= {name: given[name].cpu() for name in ("terminated", "truncated")}
        for _ in range(4):  # memory is made, and the first step has been waited for
            writer.append(**given)
            writer.flush()
            next(loader)
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)
        behind = torch.cuda.Event()
        behind.record()
        writer.append(**given)
        batch = next(loader)
        assert not behind.query()
        assert len(buffer) == COUNT * (5 if flags == "cpu" else 4)
        writer.flush()
        assert len(buffer) == COUNT * 5
        assert behind.query() == (flags == "gpu")
        assert batch["obs"].shape == (4, 4, 4)


def test_a_call_whose_flags_lie_on_the_gpu_is_stored_with_the_next(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("flags in host memory are read at once")
    with gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer:
        writer = buffer.writer(COUNT, autoreset="same_step")
        for call in range(3):
            assert len(buffer) == COUNT * max(call - 1, 0)
            writer.append(**given_on("cuda", call))
        assert len(buffer) == 2 * COUNT
        assert len(writer.episodes) == COUNT  # asks, and so waits
        assert len(buffer) == 3 * COUNT
        writer.append(**given_on("cuda", 9))
        writer.end_episode()
        assert len(buffer) == 4 * COUNT
        writer.append(**given_on("cuda", 10))
        writer.close()
        assert len(buffer) == 5 * COUNT
        dropped = buffer.writer(COUNT, autoreset="same_step")
        dropped.append(**given_on("cuda", 11))
        del dropped
        assert len(buffer) == 6 * COUNT


def test_a_bad_priority_on_the_gpu_is_found_by_the_next_call(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("priorities in host memory are read at once")
    with gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer:
        writer = buffer.writer(COUNT, autoreset="same_step")
        writer.append(
            **given_on("cuda", 1), priority=torch.full((COUNT,), torch.nan, device="cuda")
        )
        with pytest.raises(gear.InvalidArgument, match=r"priority nan.*of the last append"):
            writer.append(**given_on("cuda", 2))
        assert len(buffer) == 0
        writer.append(**given_on("cuda", 3))
        writer.close()
        assert len(buffer) == COUNT


class OfAnotherFramework:
    """An array of which nobody knows the stream, as of Warp: only its DLPack."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.tensor.__dlpack__(**arguments)


def test_arrays_of_unknown_frameworks_may_be_overwritten_at_once(gpu) -> None:
    """Beside arrays of torch, and by themselves."""
    with (
        gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer,
        gear.ReplayBuffer(SCHEMA, 400, page_steps=4) as wanted,
    ):
        writer = buffer.writer(COUNT, autoreset="same_step")
        by_host = wanted.writer(COUNT, autoreset="same_step")
        for seed in range(40):
            by_host.append(**given_on("cpu", seed))
            there = given_on(gpu.device, seed)
            writer.append(
                **{
                    name: OfAnotherFramework(tensor) if seed % 2 or i % 2 else tensor
                    for i, (name, tensor) in enumerate(there.items())
                }
            )
            for tensor in there.values():
                tensor.zero_()
        writer.close()
        by_host.close()
        assert stored(buffer) == stored(wanted)


def test_a_loader_that_captures_graphs_beside_a_writer(gpu) -> None:
    """In another thread: both work on the stream of the pages' mirror."""
    with gpu.place("device").buffer(SCHEMA, 4000, page_steps=4) as buffer:
        writer = buffer.writer(COUNT, autoreset="same_step")
        writer.append(**given_on(gpu.device))
        writer.flush()
        failed: list[BaseException] = []

        def draw() -> None:
            try:
                for _ in range(12):
                    to = gpu.to_gpu() or {"framework": "torch"}
                    loader = buffer.loader(8, outputs={"obs": gear.Step(0, "obs")}, **to)
                    for _ in range(30):
                        next(loader)
                    loader.close()
            except BaseException as error:  # noqa: BLE001  # for the thread that waits
                failed.append(error)

        thread = threading.Thread(target=draw)
        thread.start()
        calls = 0
        while thread.is_alive():
            writer.append(**given_on(gpu.device, calls))
            calls += 1
        thread.join()
        writer.close()
        assert not failed, failed
        assert buffer.stats()["steps_inserted"] == COUNT * (calls + 1)


def test_a_stream_that_is_captured_is_refused(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("host memory has no graphs")
    with gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer:
        writer = buffer.writer(COUNT, autoreset="same_step")
        given = given_on("cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.graph(graph, capture_error_mode="thread_local"),
            pytest.raises(gear.InvalidArgument, match="captured into a CUDA graph"),
        ):
            writer.append(**given)
        writer.append(**given)
        writer.close()
        assert len(buffer) == COUNT


def test_a_dropped_writer_does_not_wait_for_a_rate_limit(gpu, caplog) -> None:
    if gpu.rehearsal:
        pytest.skip("flags in host memory are read at once")
    limit = gear.RateLimit(samples_per_insert=1.0, min_steps=COUNT, slack=2.0 * COUNT)
    with gpu.place("device").buffer(SCHEMA, 400, page_steps=4, rate_limit=limit) as buffer:
        writers = [buffer.writer(COUNT, autoreset="same_step", timeout_s=0.2)]

        def until_the_limit() -> None:
            for call in range(20):
                writers[0].append(**given_on("cuda", call))

        with pytest.raises(TimeoutError, match="of the last append"):
            until_the_limit()
        writers[0].append(**given_on("cuda", 30))
        writers.clear()
        assert "could not store its last call" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": torch.zeros(COUNT, 4, 4, dtype=torch.float64)}, "another dtype"),
        ({"obs": torch.zeros(COUNT, 4)}, "takes float32 of shape"),
        ({"obs": torch.zeros(COUNT + 1, 4, 4)}, "one for each of the 7"),
        ({"terminated": torch.zeros(COUNT, dtype=torch.uint8)}, "another dtype"),
        ({"priority": torch.zeros(COUNT, 2)}, "takes float32 of shape"),
        ({"final": {"obs": np.full(COUNT, None, object)}}, "array of objects"),
    ],
)
def test_refusals_store_nothing(gpu, change: dict[str, Any], message: str) -> None:
    if gpu.rehearsal:
        pytest.skip("what a GPU's arrays must be")
    with gpu.place("device").buffer(SCHEMA, 400, page_steps=4) as buffer:
        writer = buffer.writer(COUNT, autoreset="same_step")
        given = given_on("cuda")
        given |= {
            name: value.cuda() if isinstance(value, torch.Tensor) else value
            for name, value in change.items()
        }
        with pytest.raises(gear.InvalidArgument, match=message):
            writer.append(**given)
        writer.flush()
        assert len(buffer) == 0
        writer.append(**given_on("cuda"))
        writer.close()
        assert len(buffer) == COUNT


def test_one_writer_of_one_episode_takes_arrays_of_the_host(gpu) -> None:
    if gpu.rehearsal:
        pytest.skip("host memory is taken")
    with gpu.place("device").buffer(SCHEMA, 400) as buffer, buffer.writer() as writer:
        given = {n: v[0] for n, v in given_on("cuda").items() if n != "terminated"}
        with pytest.raises(gear.InvalidArgument, match="move it to the CPU first"):
            writer.append(**given)
