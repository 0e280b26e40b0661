"""tests/mutations: each fault has its place and its tests, and what counts as found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mutations import run
from mutations.mutation import KINDS, Mutation, read_mutations
from mutations.outcomes import Outcome, of_doctest, of_pytest
from mutations.still_there import complaints

REPOSITORY = Path(__file__).parents[2]
TOY = Mutation("toy.py", "a + 1", "a", tests=["tests/test_toy.py::test_sum"], native=["a case"])
CASES = 'TEST_CASE("a case") {}\nTEST_CASE(\n    "another "\n    "case") {}\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What TOY fits."""
    (tmp_path / "tests" / "native" / "toy").mkdir(parents=True)
    (tmp_path / "toy.py").write_text("def sum(a):\n    return a + 1\n")
    (tmp_path / "tests" / "test_toy.py").write_text("def test_sum():\n    pass\n")
    (tmp_path / "tests" / "native" / "toy" / "test_toy.cpp").write_text(CASES)
    return tmp_path


def test_every_place_and_every_test_is_there() -> None:
    assert complaints(read_mutations(), REPOSITORY) == {}


def test_there_are_ten_of_each_kind() -> None:
    mutations = read_mutations()
    assert all(mutation.fault.endswith(".") for mutation in mutations.values())
    assert all(mutation.old != mutation.new for mutation in mutations.values())
    numbers = Counter(name.partition("/")[0] for name in mutations)
    assert all(numbers[kind] >= 10 for kind in KINDS), numbers


def test_what_fits_is_not_complained_of(tree: Path) -> None:
    both = [TOY, replace(TOY, tests=["tests/test_toy.py::test_sum[1-a]"], native=["another case"])]
    assert complaints({str(i): one for i, one in enumerate(both)}, tree) == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"old": "a + 2"}, "its place in toy.py has moved: its old text stands there 0 times"),
        ({"old": "a"}, "its place in toy.py has moved: its old text stands there 2 times"),
        ({"file": "gone.py"}, "its place in gone.py has moved: there is no such file"),
        ({"tests": ["tests/test_toy.py::test_product"]}, "test_toy.py::test_product is there no"),
        ({"tests": ["tests/test_gone.py::test_sum"]}, "its test tests/test_gone.py::test_sum is"),
        ({"native": ["a cas"]}, "its native test 'a cas' is there no more"),
        ({"tests": [], "native": []}, "it names no test"),
    ],
)
def test_what_has_moved_is_said_by_name(
    tree: Path, change: dict[str, object], sentence: str
) -> None:
    (said,) = complaints({"core/toy": replace(TOY, **change)}, tree)["core/toy"]
    assert said.startswith("mutation core/toy: ")
    assert sentence in said


def test_check_looks_at_a_tree_and_says_what_has_moved(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = replace(TOY, old="a + 2")
    monkeypatch.setattr(run, "read_mutations", lambda: {"core/toy": TOY, "core/moved": moved})
    assert run.main(["--check", "--tree", str(tree)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("mutation core/moved: its place in toy.py has moved: ")
    assert run.main(["--check", "core/toy", "--tree", str(tree)]) == 0
    assert run.main(["core/other"]) == 2


# ---- what counts as found

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_x" name="test_one[1]"/>
<testcase classname="tests.a.test_x" name="test_one[2]"><failure message="no"/></testcase>
<testcase classname="tests.a.test_x" name="test_two"><error message="of its fixture"/></testcase>
<testcase classname="tests.a.test_x" name="test_three"><skipped/></testcase>
<testcase classname="tests.a.test_x.TestIt" name="test_four"/>
<testcase classname="" name="tests.a.test_y"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("node", "outcome"),
    [
        ("tests/a/test_x.py::test_one", Outcome.FAILED),
        ("tests/a/test_x.py::test_one[1]", Outcome.PASSED),
        ("tests/a/test_x.py::test_one[3]", Outcome.NOT_RUN),
        ("tests/a/test_x.py::test_on", Outcome.NOT_RUN),
        ("tests/a/test_x.py::test_two", Outcome.BROKEN),
        ("tests/a/test_x.py::test_three", Outcome.SKIPPED),
        ("tests/a/test_x.py::TestIt::test_four", Outcome.PASSED),
        ("tests/a/test_y.py::test_five", Outcome.NOT_RUN),
    ],
)
def test_what_pytest_reports(node: str, outcome: Outcome) -> None:
    assert of_pytest(REPORT, [node]) == {node: outcome}


@pytest.mark.parametrize(
    ("output", "code", "outcome"),
    [
        ("[doctest] test cases: 1 | 1 passed | 0 failed | 9 skipped", 0, Outcome.PASSED),
        ("[doctest] test cases: 1 | 0 passed | 1 failed | 9 skipped", 1, Outcome.FAILED),
        ("[doctest] test cases: 0 | 0 passed | 0 failed | 10 skipped", 0, Outcome.NOT_RUN),
        ("", -11, Outcome.FAILED),
        ("", None, Outcome.FAILED),  # it never ended
        ("error while loading shared libraries", 127, Outcome.BROKEN),
    ],
)
def test_what_doctest_reports(output: str, code: int | None, outcome: Outcome) -> None:
    assert of_doctest(output, code) is outcome


@pytest.mark.parametrize(
    ("before", "with_fault", "said"),
    [
        ("PASSED PASSED", "FAILED PASSED", "caught by tests/test_toy.py::test_sum"),
        ("PASSED PASSED", "PASSED FAILED", "caught by a case"),
        ("PASSED PASSED", "PASSED PASSED", "NOT CAUGHT: tests/test_toy.py::test_sum passes; a"),
        ("PASSED PASSED", "BROKEN PASSED", "NOT CAUGHT: tests/test_toy.py::test_sum does not get"),
        ("FAILED PASSED", "FAILED PASSED", "NOT CAUGHT: .* fails without the fault, too"),
        ("SKIPPED PASSED", "SKIPPED FAILED", "caught by a case"),
    ],
)
def test_a_test_counts_that_passes_and_then_fails(before: str, with_fault: str, said: str) -> None:
    named = [*TOY.tests, *TOY.native]
    found, found_with = (
        dict(zip(named, (Outcome[word] for word in words.split()), strict=True))
        for words in (before, with_fault)
    )
    assert re.match(said, run.verdict(TOY, found, found_with))
