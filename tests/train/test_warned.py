"""Warnings of Python and of libraries, with the rank that they come from."""

from __future__ import annotations

import logging
import warnings
from types import SimpleNamespace

import pytest
from rich.console import Console

from gear.train.record.display import Display
from gear.train.record.warned import to_stderr, warnings_told
from gear.train.run import _warn


@pytest.fixture
def told():
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning, list(logging.getLogger().handlers)
        with warnings_told(said.append):
            yield said
        assert (warnings.showwarning, logging.getLogger().handlers) == before


def test_a_warning_of_python_is_told_with_its_place(told):
    warnings.warn("too warm", UserWarning, stacklevel=1)
    (said,) = told
    assert "test_warned.py:" in said
    assert said.endswith("UserWarning: too warm")


def test_a_warning_that_is_logged_is_told_once_and_nothing_less(told, capsys):
    console = logging.StreamHandler()
    logging.getLogger("some.library").warning("%d left", 3)
    logging.getLogger("some.library").info("going on")
    assert told == ["some.library: 3 left"]
    assert capsys.readouterr() == ("", "")
    console.close()


def test_a_library_with_a_console_of_its_own_is_told_once(told, capsys, tmp_path):
    """Its file has all; a logger that does not propagate goes on to say what is its own."""
    library, part = logging.getLogger("own.console"), logging.getLogger("own.console.part")
    alone = logging.getLogger("own.alone")
    alone.propagate = False
    made = [logging.StreamHandler(), logging.FileHandler(tmp_path / "own.log")]
    apart = logging.StreamHandler()
    for logger, handler in ((library, made[0]), (library, made[1]), (alone, apart)):
        logger.addHandler(handler)
    try:
        part.warning("cold")
        library.setLevel(logging.INFO)
        library.info("going on")
        alone.warning("by myself")
    finally:
        for logger in (library, alone):
            for handler in list(logger.handlers):
                logger.removeHandler(handler)
                handler.close()
        library.setLevel(logging.NOTSET)
        alone.propagate = True
    assert told == ["own.console.part: cold"]
    assert capsys.readouterr() == ("", "going on\nby myself\n")
    assert (tmp_path / "own.log").read_text() == "cold\ngoing on\n"


def test_a_library_has_its_console_back_at_the_end(capsys):
    library, handler = logging.getLogger("own.console"), logging.StreamHandler()
    factory = logging.getLogRecordFactory()
    library.addHandler(handler)
    try:
        with warnings_told(lambda _: None):
            library.warning("cold")
        library.warning("warm")
    finally:
        library.removeHandler(handler)
    assert logging.getLogRecordFactory() is factory
    assert capsys.readouterr().err == "warm\n"


def test_who_says_it(capsys):
    to_stderr(2, 4)("cold")
    to_stderr(0, 1)("alone")
    assert capsys.readouterr().err == "rank 2: cold\nalone\n"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_run_says_each_warning_of_each_rank_once(capsys, tmp_path, rank):
    """Not once more by the handlers that Hydra gives to logging; rank 0's are in the log, too."""
    log = tmp_path / "train.log"
    root = logging.getLogger()
    hydras = [logging.StreamHandler(), logging.FileHandler(log)]
    for handler in hydras:
        root.addHandler(handler)
    try:
        with Display(Console(quiet=rank > 0), "SAC", 10) as display, warnings.catch_warnings():
            warnings.simplefilter("always")
            if rank == 0:
                display.log_to(log)
            with warnings_told(_warn(display, SimpleNamespace(rank=rank, size=2))):
                warnings.warn("too warm", UserWarning, stacklevel=1)
                logging.getLogger("some.library").warning("%d left", 3)
    finally:
        for handler in hydras:
            root.removeHandler(handler)
            handler.close()
    shown, said = capsys.readouterr()
    assert shown == ""
    first, second = said.splitlines()
    assert first.startswith(f"rank {rank}: ")
    assert first.endswith("UserWarning: too warm")
    assert second == f"rank {rank}: some.library: 3 left"
    words = log.read_text()
    assert [words.count(w) for w in ("too warm", "3 left")] == [1 if rank == 0 else 0] * 2
