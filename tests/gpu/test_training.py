"""`gear train device=cuda`: it continues bit-equal, and does not wait while it learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for module in ("torch", "hydra", "gymnasium"):
    pytest.importorskip(module)

WORKER = Path(__file__).with_name("train_worker.py")
SHORT = ("algo.learning_starts=100", "algo.batch_size=32", "replay.capacity=1000")
SAC = ("env=pendulum", *SHORT)  # prioritised, n_step=3
DQN = ("env=cartpole", *SHORT)


def work(gpu, mode: str, folder: Path, *overrides: str, tier: str = "host") -> dict:
    if mode != "rest":
        tier = "host" if gpu.rehearsal else tier
        overrides = (*overrides, f"device={gpu.device}", f"replay.tier={tier}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("CUBLAS_WORKSPACE_CONFIG", None)  # the trainer sets it
    done = subprocess.run(
        [sys.executable, str(WORKER), mode, str(folder), *overrides],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["device"] == ("cpu" if gpu.rehearsal else "cuda:0")
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "tier"),
    [
        (SAC, "host"),
        (SAC, "device"),
        (DQN, "pinned"),
        ((*DQN, "replay=uniform", "algo.n_step=1"), "device"),
    ],
    ids=["sac-host", "sac-device", "dqn-pinned", "dqn-uniform-device"],
)
def test_continued_run_is_bit_equal(gpu, tmp_path, overrides, tier) -> None:
    """Two processes of a run that the first one saved at its middle end with the same bits."""
    whole = work(gpu, "whole", tmp_path, *overrides, tier=tier)
    assert whole["updates"] == 201
    assert whole["finite"]
    assert whole["cublas"] == ":4096:8"
    rest = work(gpu, "rest", tmp_path)
    assert rest == whole


@pytest.mark.parametrize("compile", ["auto", "off"])
@pytest.mark.parametrize("overrides", [SAC, (*SAC, "algo.n_step=1"), DQN], ids=" ".join)
def test_a_step_does_not_wait_for_the_gpu(gpu, tmp_path, overrides, compile) -> None:
    if gpu.rehearsal:
        pytest.skip("torch counts waits for a GPU alone")
    overrides = (*overrides, f"algo.compile={compile}")
    assert work(gpu, "learn", tmp_path, *overrides, tier="device")["finite"]


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [SAC, (*DQN, "algo.target_every=30")], ids=["sac", "dqn"])
def test_captured_and_not_learn_the_same_to_the_bit(gpu, tmp_path, overrides) -> None:
    """Weights, draws and generators after 201 updates, of which the graph made all but three."""
    captured = work(gpu, "whole", tmp_path / "a", *overrides, "algo.compile=auto")
    plain = work(gpu, "whole", tmp_path / "b", *overrides, "algo.compile=off")
    assert plain.pop("launching") == "not captured: algo.compile=off"
    if not gpu.rehearsal:
        assert captured["launching"] == "one launch each, captured as a CUDA graph"
    del captured["launching"]
    assert captured == plain


def test_a_graph_draws_what_its_function_would_draw(gpu, monkeypatch) -> None:
    """From the first replay on, however late a busy GPU begins what precedes the capture."""
    if gpu.rehearsal:
        pytest.skip("host memory captures nothing")
    import torch

    from gear.train.algo.captured import WARM_UP, Captured, CudaGraphs

    recorder = CudaGraphs()
    empty_cache = torch.cuda.empty_cache

    def then_be_busy() -> None:  # torch calls it between its synchronisation and the capture
        empty_cache()
        with torch.cuda.stream(recorder._stream):
            torch.cuda._sleep(200_000_000)

    monkeypatch.setattr(torch.cuda, "empty_cache", then_be_busy)
    given = torch.zeros(8, device=gpu.device)

    def drawn(function) -> list:
        torch.manual_seed(7)
        return [function(given).tolist() for _ in range(WARM_UP + 3)]

    captured = Captured(lambda zeros: zeros + torch.randn_like(zeros), recorder)
    assert drawn(captured) == drawn(lambda zeros: zeros + torch.randn_like(zeros))


def test_gear_train(gpu, tmp_path, monkeypatch) -> None:
    """The command, from its words to its report."""
    pytest.importorskip("rich")
    pytest.importorskip("matplotlib")
    from gear.train.app import main

    monkeypatch.chdir(tmp_path)
    assert main([*SAC, f"device={gpu.device}", "total_steps=300", "logger=csv"]) == 0
    (run_dir,) = tmp_path.glob("outputs/*/*")
    assert json.loads((run_dir / "summary.json").read_text())["updates"] == 201
