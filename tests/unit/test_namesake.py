"""PyPI's other `gear` in one folder with GEAR: each says so in a sentence, and what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gear
from gear import _core
from gear.cli import check

REMEDY = "pip uninstall gear, then pip install --force-reinstall --no-deps gear-replay"
ITS_INIT = "from gear import acl\n\n\nclass Client:\n    pass\n"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder for sys.path with both packages' files, GEAR's written last."""
    source = Path(gear.__file__).parent
    shutil.copytree(
        source, tmp_path / "gear", ignore=shutil.ignore_patterns("*.so", "*__pycache__")
    )
    (tmp_path / "gear" / Path(_core.__file__).name).symlink_to(_core.__file__)
    (tmp_path / "gear" / "acl.py").touch()
    (tmp_path / "gear" / "constants.py").touch()
    info = tmp_path / "gear-0.16.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gear\nVersion: 0.16.0\n")
    (info / "RECORD").write_text("gear/__init__.py,,\ngear/acl.py,,\n")
    return tmp_path


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """`program` with `folder` first, before what an editable installation puts there."""
    first = f"""import sys
sys.meta_path = [m for m in sys.meta_path if "skbc" not in type(m).__module__]
sys.path.insert(0, {str(folder)!r})
"""
    return subprocess.run([sys.executable, "-c", first + program], capture_output=True, text=True)


def test_import_of_gear_beside_the_other_warns(mixed: Path) -> None:
    done = run(mixed, "import gear; print(gear.ReplayBuffer.__name__)")
    assert done.stdout == "ReplayBuffer\n", done.stderr
    assert f"{mixed / 'gear'} holds GEAR (gear-replay) and PyPI's package 'gear'" in done.stderr
    assert REMEDY in done.stderr


def test_the_command_says_that_gear_is_the_other(mixed: Path) -> None:
    (mixed / "gear" / "__init__.py").write_text(ITS_INIT)
    done = run(mixed, "from gear.cli.app import main; sys.exit(main(['check']))")
    assert done.returncode == 2
    assert done.stderr == (
        f"gear: [import] gear in {mixed / 'gear' / '__init__.py'} is not GEAR but another package "
        f"of that name, PyPI's 'gear': {REMEDY}\n"
    )


def test_check_names_the_other(mixed: Path) -> None:
    program = (
        "from gear.cli import check\nfor f in check.packages(): print(f.name, f.status, f.detail)"
    )
    done = run(mixed, program)
    assert f"gear broken 0.16.0 of PyPI: {REMEDY}\n" in done.stdout, done.stderr


def test_check_is_silent_without_the_other() -> None:
    names = [finding.name for finding in check.packages()]
    assert "numpy" in names
    assert "gear" not in names
