"""What a machine without a GPU is told; the build with CUDA imports and works on it too."""

from __future__ import annotations

import numpy as np
import pytest

import gear
from gear import _core

SCHEMA = gear.Schema([gear.Column("obs", (3,)), gear.Column("reward")])

pytestmark = pytest.mark.skipif(bool(_core.devices()), reason="this machine has a GPU")


def test_devices_is_empty() -> None:
    assert _core.devices() == []
    assert gear.device.visible_device_count() == 0


@pytest.mark.parametrize("tier", ["pinned", "device", "device:0", "device:7"])
def test_tiers_that_need_a_gpu_say_what_is_missing(tier: str) -> None:
    if _core.build_info()["cuda"]:
        with pytest.raises(gear.CudaError, match=r"\[cuda\] cuda\w+ failed.*tier='host'"):
            gear.ReplayBuffer(SCHEMA, 64, tier=tier)
    else:
        tier_name = tier.partition(":")[0]
        message = rf"\[memory\] tier '{tier_name}'.*without CUDA.*rebuild"
        with pytest.raises(gear.InvalidArgument, match=message):
            gear.ReplayBuffer(SCHEMA, 64, tier=tier)


@pytest.mark.parametrize("tier", ["device:", "device:x", "device:-1", "gpu"])
def test_an_unknown_tier_is_refused(tier: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=rf"\[memory\].*'{tier}'.*device:"):
        gear.ReplayBuffer(SCHEMA, 64, tier=tier)


@pytest.mark.parametrize("tier", ["host", "device"])
def test_a_name_on_an_unnamed_tier_is_refused(tier: str) -> None:
    with pytest.raises(gear.InvalidArgument, match=rf"name='mine'.*'{tier}'.*'shared'.*'pinned'"):
        gear.ReplayBuffer(SCHEMA, 64, tier=tier, name="mine")


def test_the_host_tier_works() -> None:
    buffer = gear.ReplayBuffer(SCHEMA, 64)
    with buffer.writer() as writer:
        writer.append(obs=np.ones(3, np.float32), reward=np.float32(2))
        writer.end_episode(terminated=True)
    with buffer.loader(4, framework="numpy") as loader:
        assert (next(loader)["reward"] == 2).all()
