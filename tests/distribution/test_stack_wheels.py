"""Wheels that are built from source are kept under a hash of what determines them."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution.recipe_part import fake_python, run_part

MAKE = """
make_toy() { echo made >>"$CACHE.count"; echo wheel >"$1/toy-1-py3-none-any.whl"; }
wheel_of toy make_toy {determinants}
cat "$WHEEL"; echo "$WHEEL"
"""


def make(folder: Path, *determinants: str, before: str = ""):
    fake_python(folder / "build", "echo python of the test")
    return run_part(
        "wheels.sh", before + MAKE.replace("{determinants}", " ".join(determinants)), folder
    )


def times_made(folder: Path) -> int:
    return len((folder / "cache.count").read_text().splitlines())


def test_a_wheel_is_made_once(tmp_path):
    for _ in range(3):
        done = make(tmp_path, "one", "two")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-2] == "wheel"
    assert times_made(tmp_path) == 1
    assert "the wheel of an earlier build" in done.stdout


def test_another_determinant_makes_another(tmp_path):
    make(tmp_path, "one")
    make(tmp_path, "two")
    assert times_made(tmp_path) == 2
    make(tmp_path, "one")
    assert times_made(tmp_path) == 2


@pytest.mark.parametrize("harm", ["other content", None])
def test_a_damaged_one_is_made_again(tmp_path, harm):
    wheel = Path(make(tmp_path, "one").stdout.splitlines()[-1])
    if harm is None:
        wheel.unlink()
    else:
        wheel.write_text(harm)
    done = make(tmp_path, "one")
    assert done.stdout.splitlines()[-2] == "wheel", done.stderr
    assert times_made(tmp_path) == 2
    assert make(tmp_path, "one").returncode == 0
    assert times_made(tmp_path) == 2


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    done = make(tmp_path, "one", before='mkdir -p "$CACHE.parent"; : >"$CACHE"')
    assert done.returncode == 0, done.stderr
    assert "its wheel is not kept for later builds" in done.stdout
    assert done.stdout.splitlines()[-2] == "wheel"


def test_a_failing_build_leaves_nothing_in_the_cache(tmp_path):
    fake_python(tmp_path / "build", "echo python of the test")
    script = (
        'make_toy() { : >"$1/half.whl"; fail "it broke" "mend it"; }\nwheel_of toy make_toy one'
    )
    done = run_part("wheels.sh", script, tmp_path)
    assert done.returncode == 1
    assert "it broke" in done.stderr
    assert not (tmp_path / "cache").exists()
