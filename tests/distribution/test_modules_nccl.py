"""gear-nccl/debug and gear-nccl/release: how NCCL runs, set by a module and given back."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution.module_tree import ModuleTree
from distribution.project import VERSION
from distribution.shells import Shell, every_shell, every_tool, read_snapshot

GPU = f"{VERSION}-gpu"
DEBUG = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,COLL,P2P,NET",
    "NCCL_DEBUG_FILE": "nccl-debug.%h.%p.log",
    "NCCL_PROTO": "Simple",
    "NCCL_ALGO": "Ring",
}
RELEASE = {"NCCL_DEBUG": "VERSION"}
USERS = {
    "nothing": {},
    "own": {
        "NCCL_DEBUG": "WARN",
        "NCCL_DEBUG_FILE": "/mine/%h:%p",
        "NCCL_ALGO": "Tree",
        "NCCL_BUILD_PATH": "/mine/nccl",
    },
}


@pytest.fixture
def tree(tmp_path: Path) -> ModuleTree:
    tree = ModuleTree(tmp_path / "prefix")
    tree.install(GPU)
    return tree


@every_shell
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(("profile", "sets"), [("debug", DEBUG), ("release", RELEASE)])
def test_a_profile_sets_and_gives_back(
    shell: Shell, tree: ModuleTree, tmp_path: Path, user: str, profile: str, sets: dict[str, str]
) -> None:
    done = shell.run(
        f"module use {tree.folder}",
        f"module load gear/{GPU}",
        shell.snapshot(tmp_path / "before"),
        f"module load gear-nccl/{profile}",
        shell.snapshot(tmp_path / "loaded"),
        f"module unload gear-nccl/{profile}",
        shell.snapshot(tmp_path / "after"),
        env=USERS[user],
    )
    before, loaded, after = (read_snapshot(tmp_path / n) for n in ("before", "loaded", "after"))
    wanted = {**sets, "NCCL_BUILD_PATH": f"{tree.home(GPU)}/base/nccl"}
    assert {name: loaded.get(name) for name in wanted} == wanted, done.stderr
    untouched = DEBUG.keys() - sets.keys()
    assert {name: loaded.get(name) for name in untouched} == {
        name: USERS[user].get(name) for name in untouched
    }
    assert after == before


@every_tool
def test_they_come_and_go_with_gear(shell: Shell, tree: ModuleTree, tmp_path: Path) -> None:
    done = shell.run(
        f"module use {tree.folder}",
        shell.snapshot(tmp_path / "before"),
        "module load gear-nccl/debug",
        shell.echo_status("alone"),
        f"module load gear/{GPU}",
        "module load gear-nccl/debug",
        shell.echo_status("after"),
        "module unload gear-nccl/debug",
        f"module unload gear/{GPU}",
        shell.snapshot(tmp_path / "after"),
    )
    assert "alone=1" in done.stdout, done.stdout + done.stderr
    assert "after=0" in done.stdout, done.stdout + done.stderr
    assert read_snapshot(tmp_path / "after") == read_snapshot(tmp_path / "before")


@every_tool
def test_a_cpu_installation_has_none(shell: Shell, tmp_path: Path) -> None:
    tree = ModuleTree(tmp_path / "prefix")
    tree.install()
    done = shell.run(
        f"module use {tree.folder}",
        "module load gear",
        "module load gear-nccl/debug",
        shell.echo_status(),
    )
    assert "status=1" in done.stdout, done.stdout + done.stderr
