"""The decision transformer over ranks: the same batches, the same losses, the same play.

Those of DeepSpeed and Horovod are in distribution/test_train_installed.py.
"""

from __future__ import annotations

import pytest
from train.launched import learned_in, start_offline, train_offline
from train.saved_data import write_pendulum

pytestmark = pytest.mark.subject("trainer")

RUN = (
    *("data=saved", "data.path=replay", "logger=csv", "total_steps=100"),
    *("model.width=16", "model.layers=2", "model.heads=2", "model.max_steps=300"),
    *("algo.context=4", "algo.warmup=0", "replay.page_steps=16", "optim.lr=1e-3"),
    *("eval_every=100", "eval_episodes=3", "+env.kwargs.max_episode_steps=20"),
)
ONE = "hydra.run.dir=run"
# Several runs by the same processes, each in a folder of its own.
SWEEP = ("-m", "dist=ddp,fsdp2", "hydra.sweep.subdir=${dist.name}", "hydra.sweep.dir=.")


def data_in(folder):
    folder.mkdir(exist_ok=True)
    write_pendulum(folder / "replay", (30, 12, 5, 9, 40, 17, 25, 20, 14))
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The rows of the metrics and the weights at the end, by one process."""
    return train_offline(data_in(tmp_path_factory.mktemp("alone")), 1, *RUN, ONE)


def check_same(found, alone):
    """Every loss within 1e-5, and the same episodes where weights are shared out, too."""
    (rows, weights), (expected_rows, expected_weights) = found, alone
    assert len(rows) == len(expected_rows) >= 2
    for row, expected in zip(rows, expected_rows, strict=True):
        for name, tolerance in {"loss": 1e-5, "action_error": 1e-5, "eval_return": 1e-2}.items():
            assert bool(row[name]) == bool(expected[name])
            if row[name]:
                assert float(row[name]) == pytest.approx(float(expected[name]), abs=tolerance), name
    for name, expected in expected_weights.items():
        assert weights[name].numpy() == pytest.approx(expected.numpy(), abs=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_train_and_play_as_one_does(alone, tmp_path, size):
    start_offline(data_in(tmp_path), size, *SWEEP, *RUN, "algo.packed=true")
    runs = [path.parent for path in tmp_path.glob("*/metrics.csv")]
    assert len(runs) == 2
    for run in runs:
        check_same(learned_in(run), alone)
