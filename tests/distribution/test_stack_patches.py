"""Every patch says why it is there, and belongs to a source that is pinned by its hash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from distribution.recipe_part import run_part

RECIPES = Path(__file__).parents[2] / "recipes"
PATCHES = sorted((RECIPES / "patches").glob("*"))
SOURCES = sorted((RECIPES / "sources").glob("*"))


def test_there_are_some():
    assert {path.stem for path in SOURCES} == {"deepspeed", "horovod", "mpi4py"}
    assert PATCHES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_is_one_version_with_its_hash(path):
    line = re.escape(path.stem) + r"==[\d.]+ --hash=sha256:[0-9a-f]{64}\n"
    assert re.fullmatch(line, path.read_text())


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_patch_says_why_and_for_what(path):
    assert path.suffix == ".patch"
    assert path.stem.split("-")[0] in {source.stem for source in SOURCES}
    head, _, body = path.read_text().partition("\n\n--- a/")
    assert head.startswith("Why: ")
    assert len(head) > 60
    assert "\n+++ b/" in body


class Ranks:
    """As many of DeepSpeed's backend as a barrier waits for, and what torch is to them."""

    def __init__(self, number: int) -> None:
        self.distributed = self
        self.left: list[Path] = []
        self.names = [
            Path(
                f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_gear-test_{os.getpid()}_{rank}"
            )
            for rank in range(number)
        ]

    def get_world_size(self) -> int:
        return len(self.names)

    def get_rank(self) -> int:
        return 1

    def barrier(self) -> None:
        self.left = [name for name in self.names if name.exists()]


@pytest.mark.parametrize("local", ["2", "4", None])
def test_deepspeed_removes_the_name_of_its_buffer_when_all_have_it(local, monkeypatch):
    """By the lines that the patch adds. With ranks on other machines there is no buffer."""
    text = (RECIPES / "patches" / "deepspeed-shm-names.patch").read_text()
    added = re.findall(r"^\+( {4}.*|)$", text.partition("def remove_shm_name")[2], re.M)
    source = "    def remove_shm_name(self):\n" + "\n".join(added)
    ranks = Ranks(2)
    scope = {"os": os, "torch": ranks}
    exec(textwrap.dedent(source), scope)
    monkeypatch.setenv("MASTER_ADDR", "gear-test")
    monkeypatch.setenv("MASTER_PORT", str(os.getpid()))
    monkeypatch.delenv("LOCAL_SIZE", raising=False)
    if local:
        monkeypatch.setenv("LOCAL_SIZE", local)
    for name in ranks.names:
        name.touch()
    try:
        scope["remove_shm_name"](ranks)
        left = [name for name in ranks.names if name.exists()]
        if local == "2":
            assert ranks.left == ranks.names  # at the barrier
            assert left == ranks.names[:1]  # the other's is the other's
            scope["remove_shm_name"](ranks)  # a second backend in one process
        else:
            assert left == ranks.names
            assert not ranks.left
    finally:
        for name in ranks.names:
            name.unlink(missing_ok=True)


@pytest.mark.installation
def test_horovod_is_configured_with_the_mpicxx_of_the_site(tmp_path):
    """Not with the first on PATH; by the lines that the patch adds, in a project of their own."""
    mine = tmp_path / "my-mpicxx"
    mine.write_text(f'#!/bin/sh\nexec "{shutil.which("mpicxx")}" "$@"\n')
    mine.chmod(0o755)
    site = {"mpi": "on", "mpicxx": str(mine), "horovod_gloo": "off"}
    done = run_part("steps/horovod.sh", "horovod_options", tmp_path, site=site)
    assert done.returncode == 0, done.stderr
    options = dict(line.split("=", 1) for line in done.stdout.splitlines())

    added = re.findall(
        r"^\+ +(.*)$", (RECIPES / "patches" / "horovod-mpicxx.patch").read_text(), re.M
    )
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(toy CXX)\n"
        + "\n".join(added)
        + '\nfind_package(MPI REQUIRED)\nmessage(STATUS "by ${MPI_CXX_COMPILER}")\n'
    )
    configured = subprocess.run(
        ["cmake", "-S", project, "-B", tmp_path / "configured"],
        capture_output=True,
        text=True,
        env=os.environ | options,
    )
    assert configured.returncode == 0, configured.stdout + configured.stderr
    assert f"-- by {mine}\n" in configured.stdout
