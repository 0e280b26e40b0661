"""A run that was saved and continued is bit-equal to one that was not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import gear
from gear.train.algo.base import Algorithm
from gear.train.config import read
from gear.train.loop import Learner
from gear.train.record import checkpoint

pytestmark = pytest.mark.subject("trainer")

PENDULUM = (
    "algo.learning_starts=250",
    "algo.batch_size=32",
    "algo.n_step=3",
    "replay=prioritized",
    "replay.capacity=320",
    "total_steps=560",
    "model.hidden=[32]",
)
CARTPOLE = ("env=cartpole", "algo.learning_starts=250", "algo.batch_size=32", "total_steps=500")
HOPPER = (
    "env=hopper",
    "algo.learning_starts=180",
    "algo.batch_size=16",
    "model.hidden=[16]",
    "replay.capacity=1000",
    "total_steps=260",
)
ATARI = (
    "env=atari",
    "algo.learning_starts=100",
    "algo.batch_size=4",
    "model.hidden=[8]",
    "replay.capacity=512",
    "total_steps=180",
)


def advance(learner, step):
    while learner.counters.env_steps < step:
        learner.step()
    return learner


def fingerprint(learner):
    """Everything that decides the future, as comparable bytes."""
    batches = [next(learner.loader) for _ in range(3)]
    parts = {
        f"{name}.{key}": value
        for name, module in learner.algorithm.modules.items()
        for key, value in module.state_dict().items()
    }
    for number, batch in enumerate(batches):
        parts |= {f"batch{number}.{name}": batch[name] for name in batch}
        parts |= {f"batch{number}.ids": batch.ids, f"batch{number}.weights": batch.weights}
    parts["torch"] = torch.get_rng_state()
    parts["view"] = torch.from_numpy(np.stack([env.view for env in learner.envs]))
    found = {key: value.detach().numpy().tobytes() for key, value in parts.items()}
    found["returns"] = learner.counters.returns
    found["episodes"] = learner.counters.episodes
    found["running"] = [
        (one.number, one.length, one.episode_return, uid)
        for one, uid in zip(learner.acting.playing, learner.acting.writer.episodes, strict=True)
    ]
    return found


@pytest.mark.parametrize(
    ("overrides", "at"),
    [
        (PENDULUM, 470),
        (PENDULUM, 400),
        (PENDULUM, 90),
        (CARTPOLE, 333),
        ((*PENDULUM, "algo.policy_every=7"), 405),
        ((*CARTPOLE, "env.num_envs=3", "algo.train_every=2"), 333),
        pytest.param(HOPPER, 211, marks=[pytest.mark.slow, pytest.mark.needs("mujoco")]),
        pytest.param(ATARI, 150, marks=[pytest.mark.slow, pytest.mark.needs("ale_py", "cv2")]),
    ],
    ids=[
        "pendulum",
        "episode-end",
        "before-learning",
        "cartpole",
        "older-policy",
        "three-envs",
        "hopper",
        "atari",
    ],
)
def test_bit_equal(configure, tmp_path, overrides, at):
    cfg = configure(*overrides)
    expected = fingerprint(advance(Learner(cfg), cfg.total_steps))

    interrupted = advance(Learner(cfg), at)
    saved = interrupted.save(tmp_path)
    interrupted.close()
    # Other work in between, as another process would have done.
    np.random.random(5)
    torch.rand(5)
    notes = []
    continued = Learner(read(saved.config()), start=saved, note=notes.append)
    assert continued.counters.env_steps == at
    found = fingerprint(advance(continued, cfg.total_steps))
    assert notes == []
    assert [key for key in expected if expected[key] != found[key]] == []


def test_saving_does_not_disturb(configure, tmp_path):
    cfg = configure(*PENDULUM)
    plain = fingerprint(advance(Learner(cfg), 350))
    learner = advance(Learner(cfg), 250)
    learner.save(tmp_path)
    saving = fingerprint(advance(learner, 350))
    assert [key for key in plain if plain[key] != saving[key]] == []


@pytest.mark.parametrize("at", [450, 400], ids=["in-an-episode", "before-its-first-step"])
def test_simulator_that_does_not_reproduce(configure, tmp_path, at):
    """The run warns, closes the episode as truncated and goes on."""
    cfg = configure(*PENDULUM, "algo.learning_starts=440")
    learner = advance(Learner(cfg), at)
    (env,) = learner.envs
    env.view = env.view + np.float32(0.25)  # a state that no replay reaches
    saved = learner.save(tmp_path)
    notes = []
    continued = Learner(cfg, start=saved, note=notes.append)
    assert "did not reproduce episode 2" in notes[0]
    (playing,) = continued.acting.playing
    assert (playing.number, continued.counters.episodes) == (3, 4)
    assert continued.acting.writer.episodes == [None]
    advance(continued, 650)
    assert len(continued.counters.returns) == 3


def test_newest_is_found_by_number(configure, tmp_path):
    """Of 5, 10, 15 and 100 the newest is 100: names are not compared as strings."""
    cfg = configure(*PENDULUM, "keep_checkpoints=10")
    learner = Learner(cfg)
    for step in (5, 10, 15, 100):
        advance(learner, step).save(tmp_path)
    assert [c.step for c in checkpoint.checkpoints(tmp_path)] == [5, 10, 15, 100]
    assert checkpoint.find(tmp_path).step == 100
    assert checkpoint.find(tmp_path / "checkpoints" / "step_15").step == 15


def test_keeps_the_last_k(configure, tmp_path):
    learner = Learner(configure(*PENDULUM, "keep_checkpoints=2"))
    for step in (8, 9, 10, 11):
        advance(learner, step).save(tmp_path)
    assert [c.step for c in checkpoint.checkpoints(tmp_path)] == [10, 11]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step_10", "step_11"]


def test_failed_save_keeps_the_previous(configure, tmp_path, monkeypatch):
    learner = advance(Learner(configure(*PENDULUM)), 20)
    learner.save(tmp_path)
    advance(learner, 30)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="No space"):
            learner.save(tmp_path)
    assert checkpoint.find(tmp_path).step == 20
    assert learner.save(tmp_path).step == 30  # and the torn one is cleared away
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_same_step_is_replaced(configure, tmp_path):
    learner = advance(Learner(configure(*PENDULUM)), 20)
    learner.save(tmp_path)
    learner.save(tmp_path)
    assert [c.step for c in checkpoint.checkpoints(tmp_path)] == [20]


def test_killed_between_two_renames_keeps_the_step(configure, tmp_path, monkeypatch):
    """The former checkpoint of the step has lost its name, and the new one has none yet."""
    learner = advance(Learner(configure(*PENDULUM)), 20)
    learner.save(tmp_path)
    rename = Path.rename

    def killed(path, target):
        if path.name == ".step_20.saving":
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            learner.save(tmp_path)
    found = checkpoint.find(tmp_path)
    assert found.step == 20
    assert found.state()["num_ranks"] == 1
    assert found.run_dir == tmp_path
    advance(learner, 30).save(tmp_path)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step_20", "step_30"]


def test_torn_and_newer_files_are_refused(configure, tmp_path):
    saved = advance(Learner(configure(*PENDULUM)), 20).save(tmp_path)
    path = saved.path / "trainer.pt"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(gear.CorruptData, match=r"\[train\] cannot read .*trainer\.pt"):
        saved.state()
    for other, remedy in ((1, "update GEAR"), (-1, "continue it with that version")):
        torch.save({"format": checkpoint.FORMAT + other}, path)
        with pytest.raises(gear.CorruptData, match=f"by another version of GEAR .*: {remedy}"):
            saved.state()


def test_networks_are_compared_with_those_of_the_same_strategy(configure, tmp_path, monkeypatch):
    """Another one may keep them in parts."""
    saved = advance(Learner(configure(*PENDULUM)), 20).save(tmp_path)
    monkeypatch.setattr(Algorithm, "digest", lambda self: "of something else")
    with pytest.raises(gear.CorruptData, match="holds other networks than rank 0 had"):
        Learner(configure(*PENDULUM), start=saved)
    Learner(configure(*PENDULUM, "dist=ddp"), start=saved).close()


def test_no_code_runs_when_reading(tmp_path):
    folder = tmp_path / "checkpoints" / "step_1"
    folder.mkdir(parents=True)
    torch.save({"format": Path("evil")}, folder / "trainer.pt")
    with pytest.raises(gear.CorruptData, match=r"\[train\] cannot read"):
        checkpoint.find(tmp_path).state()


def test_arrays_of_every_dtype_pass_through_a_checkpoint():
    kinds = ["bool", "uint8", "uint16", "uint64", "int64", "float16", "float64"]
    state = {kind: np.ones((2, 3), kind) for kind in kinds}
    state |= {"empty": np.zeros((0, 4)), "list": [1, "a", None, math.pi]}
    back = checkpoint._to_numpy(checkpoint._to_tensors(state))
    assert back["list"] == state["list"]
    for key in (*kinds, "empty"):
        assert back[key].dtype == state[key].dtype
        np.testing.assert_array_equal(back[key], state[key])
