"""Warnings of Python and of libraries, with the rank that they come from."""

from __future__ import annotations

import logging
import warnings

import pytest

from gear.train.record.warned import to_stderr, warnings_told


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


def test_who_says_it(capsys):
    to_stderr(2, 4)("cold")
    to_stderr(0, 1)("alone")
    assert capsys.readouterr().err == "rank 2: cold\nalone\n"
