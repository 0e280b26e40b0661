"""Loading and unloading the module leaves the environment as it was, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution.module_tree import ModuleTree
from distribution.project import NAME, VERSION
from distribution.shells import BARE_PATH, Shell, every_shell, every_tool, read_snapshot

# Colons, as pushenv of Environment Modules 5.2 loses what follows one. No brackets, braces and !,
# as in tcsh the tools set values with those wrongly, or not at all.
PRESETS = {"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1", "ODD": """a "b" 'c' $d `e` \\f; g:h *?~ #&|<>()"""}

# What the user has before loading.
USERS = {
    "nothing": {},
    "own": {
        "PATH": f"/mine/a b/bin:{BARE_PATH}:/opt/c",
        "GEAR_HOME": "/mine",
        "GEAR_VERSION": "9",
        "PYTHONNOUSERSITE": "0",
        "NCCL_IB_HCA": "mlx5_2:1",
        "ODD": "$mine",
        "PYTHONPATH": "/mine/lib:",
        "MANPATH": ":/mine/man::",
        "LD_LIBRARY_PATH": "/mine/lib",
    },
    "empty": dict.fromkeys(["GEAR_HOME", "PYTHONNOUSERSITE", "ODD", "PYTHONPATH", "MANPATH"], ""),
}


@pytest.fixture
def tree(tmp_path: Path) -> ModuleTree:
    tree = ModuleTree(tmp_path / "prefix")
    tree.add_site_module("site/python/3.11")
    tree.add_site_module("site/mpi/4")
    tree.install(modules="site/python/3.11 site/mpi/4", presets=PRESETS)
    return tree


@every_shell
@pytest.mark.parametrize("user", USERS)
def test_round_trip(shell: Shell, tree: ModuleTree, tmp_path: Path, user: str) -> None:
    done = shell.run(
        f"module use {tree.folder}",
        shell.snapshot(tmp_path / "before"),
        f"module load gear/{NAME}",
        f"module unload gear/{NAME}",
        f"module load gear/{NAME}",
        shell.snapshot(tmp_path / "loaded"),
        f"module unload gear/{NAME}",
        shell.snapshot(tmp_path / "after"),
        env=USERS[user],
    )
    before, loaded, after = (read_snapshot(tmp_path / n) for n in ("before", "loaded", "after"))
    home = tree.home()
    assert loaded["GEAR_HOME"] == str(home), done.stderr
    assert loaded["GEAR_VERSION"] == VERSION
    assert loaded["PYTHONNOUSERSITE"] == "1"
    assert {name: loaded[name] for name in PRESETS} == PRESETS
    assert loaded["PATH"].split(":")[0] == f"{home}/bin"
    assert loaded["SITE_MPI"] == "site/mpi/4"
    for name in ("PYTHONPATH", "MANPATH"):
        assert loaded.get(name) == before.get(name) == USERS[user].get(name)
    if shell.tool == "lmod":  # it does not tell empty from unset, and leaves such unset
        for name in PRESETS.keys() | {"GEAR_HOME", "PYTHONNOUSERSITE"}:
            if not before.get(name):
                before.pop(name, None)
    assert after == before


@every_tool
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("{bare}:/opt/extra", id="plain"),
        pytest.param("{bare}:", id="trailing"),
        pytest.param(":{bare}", id="leading"),
        pytest.param("/usr/bin::{bare}", id="doubles"),
        pytest.param("{bare}:{home}/bin", id="its own"),
    ],
)
def test_path_is_left_as_any_module_leaves_it(
    shell: Shell, tree: ModuleTree, tmp_path: Path, path: str
) -> None:
    """Lmod tidies every PATH that a module touches: empty elements and doubles go. The most that
    GEAR's module may do to it is what a module of the one line `prepend-path PATH` does."""
    (tree.folder / "plain").mkdir()
    (tree.folder / "plain" / "1").write_text(f"#%Module\nprepend-path PATH {tree.home()}/bin\n")
    left = {}
    for name in ("plain/1", f"gear/{NAME}"):
        shell.run(
            f"module use {tree.folder}",
            shell.export("PATH", path.format(bare=BARE_PATH, home=tree.home())),
            shell.snapshot(tmp_path / "before"),
            f"module load {name}",
            f"module unload {name}",
            shell.snapshot(tmp_path / "after"),
        )
        left[name] = read_snapshot(tmp_path / "after")["PATH"]
    assert left[f"gear/{NAME}"] == left["plain/1"]
    before = read_snapshot(tmp_path / "before")["PATH"]
    if shell.tool == "modules" or path == "{bare}:/opt/extra":
        assert left[f"gear/{NAME}"] == before
