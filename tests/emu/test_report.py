"""What a report says of operations on GPUs, of which no thread of the host sees the waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emu.reports import operation, report

import gear.emu as emu

ON_GPU = replace(operation("all_reduce", 20, 4096, 0.01, 0.0), unseen_calls=20)


def test_what_nobody_saw_is_not_called_hidden() -> None:
    said = str(report(operations=(ON_GPU,), in_steps=(ON_GPU,)))
    assert "what is exposed of it is not known: 20 calls were waited for by streams" in said
    assert "exposed and" not in said
    assert "hidden" not in said


def test_what_was_seen_is() -> None:
    said = str(report(operations=(operation("all_reduce", 20, 4096, 0.01, 0.004),)))
    assert "communication: 4.000 ms exposed, 6.000 ms hidden; " in said


@pytest.mark.parametrize("takes_no_room", [True, False])
def test_links_that_do_not_say_what_kernels_take(takes_no_room: bool) -> None:
    said = str(report(operations=(ON_GPU,), takes_no_room=takes_no_room))
    assert ("what is computed beside communication is too fast" in said) == takes_no_room


def test_what_nccl_would_hold_is_said_where_links_know_it() -> None:
    of_gpu = {"operations": (ON_GPU,), "allocator_peak_bytes": 1 << 30}
    said = str(report(**of_gpu, group_bytes=200 << 20))
    assert "1024 MiB of torch's allocator; NCCL would hold 200 MiB of the GPU more" in said
    assert "allocator; what NCCL would hold is not in it" in str(report(**of_gpu))


def test_reports_of_before_are_read() -> None:
    """They have no such calls."""
    assert emu.Operation("send", 1, 4, {}, 0.0, 0, 0.0).unseen_calls == 0
