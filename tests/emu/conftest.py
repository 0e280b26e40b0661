"""The library of the process group gear_emu, and processes that need not import torch."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import warm_python
from docs.documents import ROOT

SCRIPTS = Path(sys.executable).parent
FOLDER = Path(__file__).parent
CLIENT, SERVER = (FOLDER / f"warm_{role}.py" for role in ("client", "server"))


@pytest.hookimpl(tryfirst=True)  # before those of a file are grouped
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most of them start processes that import torch; one server is enough for those that fork."""
    for item in items:
        if not item.path.is_relative_to(FOLDER):  # pytest hands over those of other folders, too
            continue
        if "library" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.subject("emulator"))
        if "warm" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("warm"))


@contextmanager
def bytecode_kept() -> Iterator[None]:
    """In the build, where Python is to leave none beside its sources: each process would compile
    anew the 900 files of torch that it imports."""
    with pytest.MonkeyPatch.context() as patch:
        if sys.dont_write_bytecode:
            kept = str(ROOT / "build" / "pycache")
            patch.setattr(sys, "dont_write_bytecode", False)
            patch.setattr(sys, "pycache_prefix", kept)
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", kept)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    with bytecode_kept():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    with bytecode_kept():
        return (yield)


@pytest.fixture(scope="session")
def library() -> None:
    """Built, unless it is: nothing of it needs more than torch and a compiler."""
    pytest.importorskip("torch")
    build = [ROOT / "tools" / "c10d.sh", "--emulator", f"--python={sys.executable}"]
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(build, env=plain, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with `python` and `gear`, which begin with torch imported (warm_server.py); of
    `gear`, what trains does, and all else is a process as ever."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("warm")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        number = listening.fileno()
        server = subprocess.Popen(
            [sys.executable, SERVER, str(number), *warm_python.IMPORTED],
            # One thread each, read when torch is imported: they share the cores that tests have.
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            pass_fds=[number],
            start_new_session=True,
        )
    client = shlex.join([sys.executable, "-IS", str(CLIENT), str(folder / "socket")])
    trains = f'[ "$1" != train ] || exec {client} -m gear.cli.app "$@"\n'
    programs = {
        "python": f'exec {client} "$@"\n',
        "gear": f'{trains}exec {shlex.quote(str(SCRIPTS / "gear"))} "$@"\n',
    }
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(0o755)
    yield folder
    server.communicate()
