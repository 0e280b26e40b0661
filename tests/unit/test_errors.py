"""The exceptions: one class per cause, each also the builtin that says the same."""

from __future__ import annotations

import pickle

import pytest

import gear
from gear import checkpoint

BUILTINS = {
    gear.InvalidArgument: ValueError,
    gear.OutOfMemory: MemoryError,
    gear.CudaError: RuntimeError,
    gear.TransportError: RuntimeError,
    gear.CorruptData: RuntimeError,
    gear.IoError: OSError,
}


@pytest.mark.parametrize("error", BUILTINS, ids=lambda error: error.__name__)
def test_each_is_a_gear_error_and_a_builtin(error: type[Exception]) -> None:
    assert issubclass(error, gear.GearError)
    assert issubclass(error, BUILTINS[error])
    assert error.__name__ in gear.__all__
    assert error.__module__.split(".")[0] == "gear"
    assert error.__doc__


def test_they_can_be_caught_by_either_name_and_cross_processes() -> None:
    for kind in (gear.GearError, ValueError, gear.InvalidArgument):
        with pytest.raises(kind, match=r"^\[schema\] "):
            gear.Schema([])
    error = pickle.loads(pickle.dumps(gear.InvalidArgument("[schema] what")))
    assert isinstance(error, gear.InvalidArgument)
    assert str(error) == "[schema] what"


def test_io_error_carries_errno(tmp_path) -> None:
    (tmp_path / "file").touch()
    with (
        gear.ReplayBuffer(gear.Schema([gear.Column("x")]), 16) as buffer,
        pytest.raises(gear.IoError) as caught,
    ):
        buffer.save(tmp_path / "file" / "missing" / "replay")
    assert caught.value.errno == 20


def test_a_nul_does_not_end_a_message() -> None:
    with pytest.raises(gear.InvalidArgument, match=r"x\\0y.*letters"):
        gear.Schema([gear.Column("x\0y")])


@pytest.mark.parametrize("path", ["nul/x\0y", b"nul/x\0y", "", None, 5])
def test_what_is_no_path_is_refused_and_nothing_is_made(path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with gear.ReplayBuffer(gear.Schema([gear.Column("x")]), 16) as buffer:
        for call in (buffer.save, gear.ReplayBuffer.load, checkpoint.inspect):
            with pytest.raises(gear.InvalidArgument, match=r"\[checkpoint\] path .* is allowed"):
                call(path)
    assert not list(tmp_path.iterdir())
