"""Where batches may go, and what is said where they may not; needs no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest

import gear
from gear import _core
from gear.arrays import gpu_array
from gear.frameworks import tensor_maker

SCHEMA = gear.Schema([gear.Column("obs", (3,)), gear.Column("reward")])
without_gpu = pytest.mark.skipif(_core.driver_version() > 0, reason="this machine has a driver")


@pytest.fixture
def buffer() -> Iterator[gear.ReplayBuffer]:
    with gear.ReplayBuffer(SCHEMA, 64) as buffer:
        with buffer.writer() as writer:
            for i in range(8):
                writer.append(obs=np.full(3, i, np.float32), reward=np.float32(i))
            writer.end_episode(terminated=True)
        yield buffer


@pytest.mark.parametrize("device", ["gpu", "", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CPU"])
def test_an_unknown_device_is_refused(buffer: gear.ReplayBuffer, device: str) -> None:
    message = rf"\[loader\] device '{device}': 'cpu', 'cuda' and 'cuda:<index>' are allowed"
    with pytest.raises(gear.InvalidArgument, match=message):
        buffer.loader(4, device=device)
    with pytest.raises(gear.InvalidArgument, match=message):
        buffer.collect([0], device=device)


@without_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_device_cuda_without_a_gpu_is_refused(buffer: gear.ReplayBuffer, device: str) -> None:
    if _core.build_info()["cuda"]:
        error, message = gear.CudaError, r"\[cuda\] cuda\w+ failed.*device='cpu'"
    else:
        error, message = gear.InvalidArgument, r"\[loader\] device 'cuda'.*without CUDA.*rebuild"
    ids = next(buffer.loader(4, framework="numpy")).ids
    with pytest.raises(error, match=message):
        buffer.loader(4, device=device)
    with pytest.raises(error, match=message):
        buffer.collect(ids, device=device)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("fast", r"\[loader\] path 'fast': 'auto', 'zero_copy' and 'staged' are allowed"),
        ("zero_copy", r"\[loader\] path 'zero_copy' from tier 'host' to a CPU.*path='auto'"),
        ("staged", r"\[loader\] path 'staged' from tier 'host' to a CPU.*path='auto'"),
    ],
)
def test_a_path_that_does_not_fit_is_refused(
    buffer: gear.ReplayBuffer, path: str, message: str
) -> None:
    with pytest.raises(gear.InvalidArgument, match=message):
        buffer.loader(4, path=path)


def test_framework_numpy_on_a_gpu_is_refused() -> None:
    with pytest.raises(gear.InvalidArgument, match=r"'numpy'.*host memory.*'cuda:1'.*torch"):
        tensor_maker("numpy", 1)


def test_framework_torch_without_a_gpu_is_refused() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch sees a GPU")
    with pytest.raises(gear.InvalidArgument, match=r"'cuda:0' with framework 'torch'.*no GPU"):
        tensor_maker("torch", 0)


def test_batch_path_is_host_on_the_cpu(buffer: gear.ReplayBuffer) -> None:
    with buffer.loader(4, framework="numpy", prefetch=1) as loader:
        batch = next(loader)
        assert batch.path == "host"
        stats = loader.stats()
    assert (stats["batches"], stats["items"], stats["bytes"]) == (1, 4, 4 * 16)
    assert stats["path"] == stats["selection"] == "host"
    assert stats["bytes_by_path"] == {"device": 0, "zero_copy": 0, "staged": 0, "host": 64}
    assert stats["hits"] == {"host": 4, "shared": 0, "pinned": 0, "device": 0}
    assert stats["gb_per_s"] > 0


def test_gpu_array_is_none_for_host_arrays() -> None:
    assert gpu_array("ids", np.arange(3), integer=True) is None
    assert gpu_array("ids", [1, 2], integer=True) is None
    torch = pytest.importorskip("torch")
    assert gpu_array("ids", torch.arange(3), integer=True) is None


def test_update_takes_bfloat16_priorities(buffer: gear.ReplayBuffer) -> None:
    torch = pytest.importorskip("torch")
    ids = next(buffer.loader(2, sampler=gear.Fifo(), framework="torch")).ids
    priorities = torch.tensor([0.5, 3.0], dtype=torch.bfloat16, requires_grad=True)
    assert buffer.update(ids, priorities) == 2
    assert buffer.priorities(ids).tolist() == [0.5, 3.0]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_batch_is_a_mapping_of_one_tensor_an_output(
    buffer: gear.ReplayBuffer, framework: str
) -> None:
    """In the order in which the outputs were given, where derived ones come behind in the core."""
    pytest.importorskip(framework)
    asked = {
        "last": gear.IsLast(),
        "following": gear.Step(1, column="reward"),
        "reward": gear.Step(),
    }
    for batch in islice(buffer.loader(16, outputs=asked, framework=framework), 2):
        first = batch["reward"]
        assert [*batch] == [name for name, _ in batch.items()] == [*asked]
        assert all(tensor is batch[name] for name, tensor in batch.items())
        assert [id(tensor) for tensor in batch.values()] == [id(batch[name]) for name in asked]
        assert batch["reward"] is first
        last, following, reward = (np.asarray(tensor) for tensor in batch.values())
        assert np.array_equal(last, reward == 7)
        assert np.array_equal(following, np.where(last, 0, reward + 1))
        with pytest.raises(KeyError):
            batch["obs"]
