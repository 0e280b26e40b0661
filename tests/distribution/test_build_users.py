"""An installation by root is for others: whether they reach it is looked at as one of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from distribution.ordinary_user import as_root
from distribution.recipe_part import fake_python, run_part

# What the recipe asks of a Python, answered as by one that lies where this file does.
PYTHON = """#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
case "$*" in
  -) cat >/dev/null; echo nothing ;;
  *__file__*) printf '%s\\n' "$here/python3" "$here/../lib/os.py" ;;
  *) echo "$here/${0##*/}" ;;
esac
"""


@pytest.fixture
def pythons(open_folder: Path) -> Path:
    """A folder with `closed/bin/python3` and `open/bin/python3`."""
    for name, mode in (("closed", 0o700), ("open", 0o755)):
        python = open_folder / name / "bin" / "python3"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)
        python.parent.parent.chmod(mode)
    return open_folder


def find_python(pythons: Path, folder: Path, *places: str) -> str:
    path = ":".join(str(pythons / place / "bin") for place in places)
    script = f"PATH={path}:/usr/bin:/bin\nPYTHON=$(find_python); echo $PYTHON; only_for_some"
    done = run_part("users.sh", script, folder, site={"python": "python3", "modules": ""})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_python_that_users_cannot_run_is_the_last_choice(pythons: Path) -> None:
    folder = pythons / "prefix"
    folder.mkdir()
    assert find_python(pythons, folder, "closed", "open") == f"{pythons}/open/bin/python3\n"


def test_where_there_is_no_other_it_is_warned_of(pythons: Path) -> None:
    folder = pythons / "prefix"
    folder.mkdir()
    script = "PYTHON=$(find_python); echo $PYTHON; only_for_some; check_users"
    site = {"python": f"{pythons}/closed/bin/python3"}
    done = run_part("steps/preflight.sh", script, folder, site=site)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{pythons}/closed/bin/python3\nthe Python {pythons}/closed/bin/")
    assert done.stderr.startswith("build:   warning: the Python ")
    assert f"below {pythons}/closed (drwx------) is closed to others" in done.stderr
    assert "set python = /usr/bin/python3 in the site file" in done.stderr


def test_a_closed_prefix_may_have_a_closed_python(pythons: Path) -> None:
    folder = pythons / "closed" / "prefix"
    folder.mkdir()
    said = find_python(pythons, folder, "closed", "open").splitlines()
    assert said[0] == f"{pythons}/closed/bin/python3"
    assert said[1].startswith(f"{pythons}/closed (drwx------) is closed to others: users who may")


def test_a_module_of_the_site_that_users_cannot_read(pythons: Path) -> None:
    folder = pythons / "prefix"
    folder.mkdir()
    script = (
        f"PYTHON={pythons}/open/bin/python3 _LMFILES_={pythons}/open/gcc:{pythons}/closed/mpi\n"
        "only_for_some"
    )
    done = run_part("users.sh", script, folder)
    assert done.stdout == (
        f"{pythons}/closed (drwx------) is closed to others, and they cannot load a module of the"
        f" site: {pythons}/closed/mpi"
    )


@as_root
def test_the_smoke_test_is_that_of_an_ordinary_user(open_folder: Path) -> None:
    """Who keeps to himself what he writes, and writes nothing into the build."""
    open_folder.joinpath("scratch").mkdir()
    fake_python(open_folder / "build", "exit 0")
    command = open_folder / "build" / "bin" / "gear"
    command.write_text(
        '#!/bin/sh\necho "$(id -u) $(umask) $HOME $TMPDIR $PWD"\n'
        'echo "[${XDG_CACHE_HOME-}${USER-}] $PATH"\n'
        'touch "$HOME/mine" "$TMPDIR/mine" && ! touch "$0" 2>/dev/null\n'
    )
    command.chmod(0o755)
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("this machine has no Python that all can run")
    values = dict.fromkeys(("torch", "mpi4py", "horovod", "deepspeed", "mpirun"), "off")
    closed = open_folder / "closed" / "bin"
    closed.mkdir(parents=True)
    closed.parent.chmod(0o700)
    script = f"PATH={closed}:$PATH PYTHON={python} XDG_CACHE_HOME=/mine USER=me\nsmoke_step"
    done = run_part(
        "steps/smoke.sh", f"export XDG_CACHE_HOME USER\n{script}", open_folder, site=values
    )
    assert done.returncode == 0, done.stderr + (open_folder / "log").read_text()
    assert "by an ordinary user (number 65534)" in done.stdout
    place = open_folder / "scratch" / "user"
    log = (open_folder / "log").read_text()
    assert f"65534 0077 {place} {place} {place}\n" in log
    # Nothing of the builder's that is closed: there, what is not found is "Permission denied".
    (path,) = re.findall(r"^\[\] (.*)$", log, re.M)
    assert str(closed) not in path
    assert "/usr/bin" in path.split(":")


def test_where_root_alone_can_enter_root_tries_it(tmp_path: Path) -> None:
    fake_python(tmp_path / "build", "exit 0")
    (tmp_path / "build" / "bin" / "gear").symlink_to("/bin/true")
    values = dict.fromkeys(("torch", "mpi4py", "horovod", "deepspeed", "mpirun"), "off")
    done = run_part("steps/smoke.sh", "smoke_step", tmp_path, site=values)
    assert done.returncode == 0, done.stderr
    why = "others cannot reach it" if os.geteuid() == 0 else "the builder is not root"
    assert f", as {why}" in done.stdout


# --- what a killed pip leaves


def distribution(layer: Path, name: str, record: str, *, command: bool) -> Path:
    """One that pip has written as far as `record` says."""
    packages = layer / f"lib/python3.{sys.version_info[1]}/site-packages"
    info = packages / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{name} = {name}:main\n")
    (info / "RECORD").write_text(record.format(info=info.name))
    if command:
        (layer / "bin").mkdir(exist_ok=True)
        (layer / "bin" / name).touch()
    return info


UNFINISHED, WHOLE = "{info}/METADATA,,\n", "{info}/METADATA,,\n{info}/INSTALLER,,\n"


def test_before_pip_installs_what_it_left_unfinished_goes(tmp_path: Path) -> None:
    layer = tmp_path / "build"
    killed = distribution(layer, "killed", UNFINISHED, command=False)
    whole = distribution(layer, "whole", WHOLE, command=True)
    fake_python(layer, "exit 0")
    done = run_part("pip.sh", "pip install killed whole", tmp_path)
    assert done.returncode == 0, done.stderr
    assert not killed.exists()
    assert whole.exists()


@pytest.mark.parametrize(
    ("record", "command", "sentence"),
    [
        (WHOLE, True, ""),
        (UNFINISHED, True, "is not installed whole, its RECORD is not pip's"),
        (WHOLE, False, "lacks its command bin/torchlike"),
    ],
    ids=["whole", "killed", "no-command"],
)
def test_no_manifest_is_written_of_what_is_not_whole(
    record: str, command: bool, sentence: str, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    distribution(base, "torchlike", record, command=command)
    manifest = Path(__file__).parents[2] / "recipes" / "manifest.py"
    packages = base / f"lib/python3.{sys.version_info[1]}/site-packages"
    check = (
        f"import runpy, sys, pathlib; sys.path[:0] = [{str(packages)!r}]\n"
        f"runpy.run_path({str(manifest)!r})['check_whole']([pathlib.Path({str(base)!r})])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert (done.returncode == 0) is (sentence == ""), done.stderr
    assert sentence in done.stderr
