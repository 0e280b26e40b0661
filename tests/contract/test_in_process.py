"""What lives in one process refuses to be pickled or copied, and says what to do; the rest is."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contract import misuse

import gear

VERBS: dict[str, Callable[[Any], Any]] = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "in_a_list": lambda thing: pickle.dumps([thing]),
}
INSTEAD = {
    "ReplayBuffer": r"save\(path\)",
    "Writer": r"buffer\.writer\(\)",
    "VectorWriter": r"buffer\.writer\(\)",
    "Loader": r"state_dict\(\)",
    "Batch": r"dict\(batch\)",
    "Group": r"Group\.from_env\(\)",
    "SharedLoader": "in each process",
    "SharedBatch": r"dict\(batch\)",
    "Transport": r"group\.transport\(\)",
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", misuse.FACTORIES)
def test_what_lives_in_a_process_says_what_to_do_instead(name: str, verb: str) -> None:
    made = misuse.FACTORIES[name](None)
    with pytest.raises(gear.InvalidArgument, match=rf"^\[pickle\] a {name} .*{INSTEAD[name]}"):
        VERBS[verb](made.thing)


def test_the_tensors_of_a_batch_are_pickled() -> None:
    made = misuse.a_batch(None)
    batch = made.thing
    again = pickle.loads(pickle.dumps(dict(batch)))
    assert {name: value.tolist() for name, value in again.items()} == {
        name: value.tolist() for name, value in batch.items()
    }
    assert np.array_equal(pickle.loads(pickle.dumps(batch.ids)), batch.ids)
    for attribute in ("masks", "lengths"):
        found = getattr(batch, attribute)
        with pytest.raises(gear.InvalidArgument, match=r"^\[pickle\] .*dict\(batch\.masks\)"):
            copy.deepcopy(found)
        assert list(pickle.loads(pickle.dumps(dict(found)))) == list(batch)


def test_torch_saves_a_batchs_tensors_and_refuses_the_batch() -> None:
    torch = pytest.importorskip("torch")
    with gear.ReplayBuffer(misuse.SCHEMA, 64) as buffer:
        with buffer.writer() as writer:
            writer.extend(**misuse.ROWS)
            writer.end_episode()
        with buffer.loader(4, framework="torch") as loader:
            batch = next(loader)
            for thing in (buffer, loader, batch):
                with pytest.raises(gear.InvalidArgument, match=r"^\[pickle\] "):
                    torch.save(thing, io.BytesIO())
            file = io.BytesIO()
            torch.save(dict(batch), file)
            file.seek(0)
            assert torch.equal(torch.load(file, weights_only=True)["x"], batch["x"])


def values() -> dict[str, Any]:
    """One of every class of values."""
    buffer = misuse.filled()
    with buffer.loader(4, framework="numpy") as loader:
        next(loader)
        stats = loader.stats()
    return {
        "Column": gear.Column("x", (2,), "int8"),
        "Schema": misuse.SCHEMA,
        "Step": gear.Step(1, "x"),
        "Window": gear.Window(0, 2, pad="head"),
        "Derived": gear.Derived(),
        "Terminated": gear.Terminated(gear.Step(1)),
        "IsLast": gear.IsLast(),
        "StepIndex": gear.StepIndex(gear.Window(0, 2)),
        "Sampler": gear.Sampler(),
        "Uniform": gear.Uniform(unit="episode"),
        "Weighted": gear.Weighted(0.5, 0.25),
        "Sequential": gear.Sequential(shuffle=False),
        "Fifo": gear.Fifo(),
        "Lifo": gear.Lifo(),
        "TopK": gear.TopK(),
        "RateLimit": gear.RateLimit(4.0, 10),
        "Episode": buffer.episodes()[0],
        "BufferStats": buffer.stats(),
        "LoaderStats": stats,
    }


def test_values_are_pickled_and_copied() -> None:
    made = values()
    assert set(made) == misuse.VALUES
    for name, value in made.items():
        for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
            assert type(again) is type(value)
            assert repr(again) == repr(value), name


@pytest.mark.parametrize(
    "error",
    [
        gear.GearError("[area] what"),
        gear.InvalidArgument("[area] what"),
        gear.OutOfMemory("[area] what"),
        gear.CudaError("[area] what"),
        gear.TransportError("[area] what"),
        gear.CorruptData("[area] what"),
        gear.IoError(28, "[io] what"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes(error: gear.GearError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert getattr(again, "errno", None) == getattr(error, "errno", None)
