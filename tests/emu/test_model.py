"""Models: by name, by file, of users; and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from gear.emu import Curve, Links, Shape, ask, model, two_level, write_curves
from gear.errors import InvalidArgument

H100 = Links.load("hgx-h100")


def twice(operation: str, shape: Shape, links: Links) -> Curve:
    """A user's model."""
    curve = two_level(operation, shape, links)
    return Curve.of(((one.bytes, 2 * one.seconds) for one in curve.points), "given", "twice")


def breaks(operation: str, shape: Shape, links: Links) -> Curve:
    raise KeyError("nvlink")


def gives_seconds(operation: str, shape: Shape, links: Links) -> Curve:
    return 1.0  # type: ignore[return-value]


def gives_nan(operation: str, shape: Shape, links: Links) -> Curve:
    return Curve.of([(1, float("nan"))], "given")


not_a_function = 3


def test_the_built_in_one_is_the_default() -> None:
    assert model() is two_level
    assert model("two_level") is two_level
    assert model(twice) is twice


def test_one_of_a_module_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    own = ask(model("test_model:twice"), "all_reduce", Shape(8), H100)
    assert (
        own.at(1 << 20).seconds == 2 * two_level("all_reduce", Shape(8), H100).at(1 << 20).seconds
    )


def test_a_file_answers_for_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    curve = two_level("all_reduce", Shape(8), H100)
    write_curves(path, {("all_reduce", Shape(8)): curve})
    asked = model(path)
    assert ask(asked, "all_reduce", Shape(8), H100).at(1 << 20).source == curve.at(1 << 20).source
    with pytest.raises(
        InvalidArgument, match=r"no all_reduce of 8 a node on 2 nodes: 8 a node on 1"
    ):
        ask(asked, "all_reduce", Shape(8, 2), H100)
    with pytest.raises(InvalidArgument, match=r"no send of 2 a node on 1 node: none of it at all"):
        ask(asked, "send", Shape(2), H100)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("three_level", "'two_level', 'none', 'package.module:function' and the path"),
        ("module:", "are allowed"),
        ("no_such_module:twice", "cannot be had: No module named 'no_such_module'"),
        ("math:twice", "cannot be had: .*no attribute 'twice'"),
        ("math:pi", "is a float: give a function"),
    ],
)
def test_a_name_of_no_model_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        model(name)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (breaks, "model breaks raised KeyError for all_reduce of 8 a node on 1 node: 'nvlink'"),
        (gives_seconds, "model gives_seconds gave a float for all_reduce"),
        (gives_nan, "model gives_nan raised InvalidArgument for .*takes nan s"),
    ],
)
def test_a_model_that_fails_is_named(own, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        ask(own, "all_reduce", Shape(8), H100)
