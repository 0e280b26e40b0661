"""tools/documented.py: what was run is compared with what the documents say and the tables name."""

from __future__ import annotations

import ast
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from docs.documents import ROOT, Command, commands, documented, launching
from docs.ran import Record

from docs import ran

TOOL = ROOT / "tools" / "documented.py"
KEYS = runpy.run_path(str(TOOL))
compare = KEYS["compare"]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, in the place of that of this run."""
    monkeypatch.setattr(ran, "FOLDER", tmp_path / "documented")
    return tmp_path / "documented"


def all_ran() -> list[Record]:
    """As if every runner had run all of its commands."""
    return [
        Record(each.text, KEYS["runner_of"](each), each.text)
        for each in commands()
        if not KEYS["reason_of"](each)
    ]


def test_all_is_well_where_each_command_was_run_or_has_a_reason() -> None:
    listed, faults = compare(commands(), all_ran(), {})
    assert faults == []
    assert set(listed) == {each.text for each in commands() if KEYS["reason_of"](each)}
    assert all(listed.values())


def test_a_command_that_its_runner_did_not_run_is_a_fault() -> None:
    others = [each for each in all_ran() if each.command != "make demo"]
    [fault] = compare(commands(), others, {})[1]
    assert fault.endswith("tools/check_fresh_machine.sh did not run this: make demo")
    # Nor does it help that somebody else says so.
    _, faults = compare(commands(), [*others, Record("make demo", ".ci/run", "make demo")], {})
    assert faults == [fault]


def test_where_pytest_skips_every_test_nothing_is_a_fault() -> None:
    """As on a commit that changes no file of any subject."""
    tests = {KEYS["runner_of"](each) for each in commands()}
    skips = {by: "nothing changed" for by in tests if Path(by).name.startswith("test_")}
    others = [each for each in all_ran() if each.by not in skips and each.by.endswith(".py")]
    others += [each for each in all_ran() if not each.by.endswith(".py")]
    assert compare(commands(), others, skips)[1] == []


def test_a_runner_that_leaves_out_a_command_says_why() -> None:
    left_out = Record("make demo", "tools/check_fresh_machine.sh", "make demo", "no time")
    others = [each for each in all_ran() if each.command != "make demo"]
    listed, faults = compare(commands(), [*others, left_out], {})
    assert (listed["make demo"], faults) == ("no time", [])


def test_a_runner_that_pytest_skipped_is_a_reason(tmp_path: Path) -> None:
    tests = tmp_path / "tests" / "rdma" / "test_in_vm.py"
    tests.parent.mkdir(parents=True)
    tests.write_text("import pytest\ndef test_it(): pytest.skip('no machine')\n")
    junit = tmp_path / "junit.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={junit}",
    ]
    subprocess.run([*command, "tests"], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    others = [each for each in all_ran() if each.command != "tests/rdma/run.sh"]
    listed, faults = compare(commands(), others, KEYS["skipped"]([junit]))
    assert (listed["tests/rdma/run.sh"], faults) == ("no machine", [])


def test_a_listed_command_that_was_run_is_a_fault() -> None:
    _, faults = compare(commands(), [*all_ran(), Record("make bench", "me", "make bench")], {})
    assert faults == ["tools/documented.py: NOT_RUN lists what me has run: make bench"]


def test_a_command_that_nobody_names_and_an_entry_for_nothing_are_faults() -> None:
    unknown = Command("README.md:1", "", "make coffee")
    kept = [each for each in commands() if each.text != "make bench"]
    faults = KEYS["faults_of_tables"]([*kept, unknown])
    assert len(faults) == 2
    assert faults[0].startswith("README.md:1: no test or script runs this")
    assert faults[1].endswith("no document has a command like make bench")


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun", "deepspeed"])
def test_one_command_starts_ranks_of_one_machine(launcher: str) -> None:
    shown, words = launching(launcher, 2)
    assert shlex.join(words) == shown.replace("4", "2")


def patterns() -> set[str]:
    """Those by which tests look for a command."""
    calls = [
        call
        for file in (ROOT / "tests").rglob("test_*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
    ]
    asked = [call.args for call in calls if getattr(call.func, "id", "") == documented.__name__]
    return {args[0].value for args in asked if len(args) == 1 and isinstance(args[0], ast.Constant)}


def test_each_command_that_a_test_looks_for_is_one() -> None:
    """Tests of minutes ask for them: a new page says so here first."""
    assert len(patterns()) > 5
    for pattern in patterns():
        documented(pattern)


def test_what_is_recorded_is_read_again(record: Path) -> None:
    command = documented("mpirun -n 4 gear train dist=ddp")
    instead = "mpirun --oversubscribe -n 2 gear train dist=ddp total_steps=9"
    ran.ran(command, instead)
    ran.ran(command, instead, by="tools/test.sh")
    mine = Record(command, "tests/docs/test_documented.py", instead)
    assert sorted(ran.records(), key=lambda each: each.by) == [
        mine,
        Record(command, "tools/test.sh", instead),
    ]
    assert len(list(record.iterdir())) == 2


def test_what_no_document_has_is_refused(record: Path) -> None:
    with pytest.raises(ValueError, match="no document has the command: make coffee"):
        ran.ran("make coffee")


@pytest.mark.parametrize(
    ("command", "instead", "same"),
    [
        ("a b", "a b", True),
        ("a b", "x a y b z", True),
        ("a b", "b a", False),
        ("a 'b c'", "a b c", False),
        ("build x --prefix /opt/gear", "build x --prefix /tmp/y", True),
        ("build x --prefix /opt/gear", "build y --prefix /tmp/y", False),
        ("gather /opt/gear/1 ~/w", "gather /tmp/p/1 /tmp/w", True),
        ("gather /opt/gear/1 ~/w", "gather /tmp/p/2 /tmp/w", False),
        ("run -n 4 --ranks=4", "run -n 2 --ranks=2", True),
        ("run -n 4", "run -n x", False),
        ("train device=cuda", "train device=cpu steps=2", True),
        ("train device=cuda", "train device=tpu", False),
    ],
)
def test_a_run_has_the_words_of_the_document(command: str, instead: str, same: bool) -> None:
    assert ran.is_a_run_of(command, instead) == same


@pytest.mark.parametrize("words", [[], ["ran", "me"], ["left-out", "me", "make demo"], ["tell"]])
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert KEYS["main"](words) == 2
    assert "tools/documented.py check" in capsys.readouterr().err
