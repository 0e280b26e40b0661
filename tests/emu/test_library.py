"""The library for this torch, and one that another version of GEAR has left."""

from __future__ import annotations

import pytest

import gear.emu as emu
from gear.emu import gpu
from gear.emu import library as emulator
from gear.errors import InvalidArgument

pytest.importorskip("torch")


@pytest.mark.usefixtures("library")
def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "FORM", emulator.FORM + 1)
    with pytest.raises(InvalidArgument, match=r"the library .*_emu.* is of another version"):
        emulator.load.__wrapped__()


def test_no_library_is_told_with_how_to_build_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "find", lambda: None)
    with pytest.raises(InvalidArgument, match=r"build it, by tools/c10d.sh --emulator"):
        emulator.load.__wrapped__()


def test_kernels_of_gpus_are_compiled_without_a_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is none, torch raises as it looks for its headers."""
    from torch.utils import cpp_extension

    monkeypatch.setattr(cpp_extension, "CUDA_HOME", None)
    with pytest.raises(OSError, match="CUDA_HOME"):
        cpp_extension.include_paths("cuda")
    with gpu._no_toolkit_needed():
        assert cpp_extension.include_paths("cuda")
    assert cpp_extension.CUDA_HOME is None


@pytest.mark.parametrize(
    ("events", "has_others", "why"),
    [
        ((), True, ""),
        ((emu.Slow(3, by=1.5),), False, "'slow' and 'jitter' are for tensors of the host"),
        ((emu.Jitter(0.1),), True, "'slow' and 'jitter' are for tensors of the host"),
        ((emu.Dead(3, call=1),), False, ""),
        (
            (emu.Dead(3, call=1),),
            True,
            "events with several real ranks are for tensors of the host",
        ),
        ((emu.LinkChange("nic", 0.5),), True, "events with several real ranks"),
    ],
)
def test_events_that_ranks_on_gpus_could_not_agree_on(
    events: tuple[emu.Slow | emu.Dead, ...], has_others: bool, why: str
) -> None:
    said = gpu.refused(events, has_others=has_others)
    assert bool(said) == bool(why)
    assert why in said
