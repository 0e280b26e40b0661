"""What activate and deactivate of an extended venv do, in every shell and under both tools."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from distribution.shells import (
    BARE_PATH,
    Shell,
    each_of,
    every_shell,
    every_shell_without_modules,
    read_snapshot,
    start_up_folder,
)
from distribution.toy_module import ToyModule, make_module, make_venv

ODD = "it's a & b (c) 100% #1"  # in the paths of venvs; a venv's own scripts allow no $ or "

# What Modules 5 says of a module that comes and goes with another.
TOOLS_OWN_WORDS = r"(Loading|Unloading) gear/|  (Loading|Unloading useless) requirement: "


every_posix_shell = each_of(("bash", "zsh", "sh"))


@dataclass(frozen=True)
class Session:
    """Lines of a shell around venvs that extend a toy module, and snapshots between them."""

    shell: Shell
    module: ToyModule
    folder: Path

    def activate(self, venv: Path) -> str:
        suffix = {"tcsh": ".csh", "fish": ".fish"}.get(self.shell.name, "")
        return self.shell.source(venv / f"bin/activate{suffix}")

    def snapshot(self, name: str) -> str:
        return self.shell.snapshot(self.folder / name)

    def environment(self, name: str) -> dict[str, str]:
        return read_snapshot(self.folder / name)

    def loaded(self, name: str) -> list[str]:
        """The modules that were loaded at snapshot(name)."""
        (value, *_) = re.findall(
            r"(?:^|\0)LOADEDMODULES=([^\0]*)", (self.folder / name).read_text()
        ) or [""]
        return value.split(":") if value else []

    def assert_same(self, after: str, before: str) -> None:
        assert self.environment(after) == self.environment(before)
        assert self.loaded(after) == self.loaded(before)

    def run(
        self, *script: str, options: tuple[str, ...] = (), use: bool = True, **env: str
    ) -> tuple[str, str]:
        """Runs lines in a shell that knows the site's module tree, and the toy's with `use`."""
        # A prompt, as people have: without one a venv leaves its own behind, or fails in tcsh.
        start = {"fish": [], "tcsh": ['set prompt = "% "']}.get(
            self.shell.name, ['export PS1="$ "']
        )
        if self.shell.tool:
            start.append(f"module use {self.shell.quote(self.module.site_modulefiles)}")
            if use:
                start.append(f"module use {self.shell.quote(self.module.modulefiles)}")
        done = self.shell.run(*start, *script, env=env, options=options)
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stderr.splitlines() if not re.match(TOOLS_OWN_WORDS, line)]
        return done.stdout, "\n".join(said)

    def visit(self, venv: Path, *script: str, use: bool = True) -> tuple[str, str]:
        """Activates `venv`, runs the lines and deactivates: snapshots before, active and after."""
        return self.run(
            self.snapshot("before"),
            self.activate(venv),
            self.snapshot("active"),
            *script,
            "deactivate",
            self.snapshot("after"),
            use=use,
        )


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, ToyModule]:
    """The toy module, for each tool. Modules 5 takes a $ in MODULEPATH for a variable of the
    environment; Lmod's function for fish splits the path of `module use` at spaces."""
    plain = make_module(tmp_path_factory.mktemp("plain"), sys.executable)
    odd = make_module(tmp_path_factory.mktemp("site") / "it's & that", sys.executable)
    return {"modules": odd, "lmod": plain, None: plain}


@pytest.fixture(scope="module")
def second(modules: dict[str | None, ToyModule]) -> dict[str | None, ToyModule]:
    """Another version of each module, beside it."""
    versions = {
        module.prefix: make_module(module.prefix, sys.executable, "2.0")
        for module in set(modules.values())
    }
    return {tool: versions[module.prefix] for tool, module in modules.items()}


@pytest.fixture(scope="module")
def venvs(
    modules: dict[str | None, ToyModule], tmp_path_factory: pytest.TempPathFactory
) -> dict[str | None, Path]:
    folder = tmp_path_factory.mktemp("venvs")
    return {tool: extended(module, folder / f"{tool} {ODD}") for tool, module in modules.items()}


@pytest.fixture
def module(modules: dict[str | None, ToyModule], shell: Shell) -> ToyModule:
    return modules[shell.tool]


@pytest.fixture
def venv(venvs: dict[str | None, Path], shell: Shell) -> Path:
    return venvs[shell.tool]


@pytest.fixture
def session(shell: Shell, module: ToyModule, tmp_path: Path) -> Session:
    return Session(shell, module, tmp_path)


def extended(module: ToyModule, folder: Path) -> Path:
    venv = make_venv(folder, sys.executable)
    done = module.extend(venv)
    assert done.returncode == 0, done.stderr
    return venv


@every_shell
def test_activation_loads_and_deactivation_restores(session: Session, venv: Path) -> None:
    out, err = session.visit(venv, "toy 1 2")
    assert err == ""
    assert out == f"python={venv}/bin/python toy=1.0 extra=False args=['1', '2']\n"
    active = session.environment("active")
    assert session.loaded("active") == ["site-python", "gear/1.0-cpu"]
    assert active["GEAR_HOME"] == str(session.module.home)
    assert active["PYTHONNOUSERSITE"] == "1"
    assert active["PATH"].split(":")[:2] == [f"{venv}/bin", f"{session.module.home}/bin"]
    assert "PYTHONPATH" not in active
    session.assert_same("after", "before")


@every_shell
def test_pythonpath_stays_as_it_is(session: Session, venv: Path) -> None:
    values = {"unset": None, "empty": "", "set": "/b:/a::"}
    script = []
    for name, value in values.items():
        shell = session.shell
        script += [
            shell.export("PYTHONPATH", value or ""),
            *([shell.unset("PYTHONPATH")] if value is None else []),
            session.activate(venv),
            session.snapshot(f"{name} active"),
            "deactivate",
            session.snapshot(f"{name} after"),
        ]
    session.run(*script)
    for name, value in values.items():
        assert session.environment(f"{name} active").get("PYTHONPATH") == value
        assert session.environment(f"{name} after").get("PYTHONPATH") == value


@every_shell
def test_a_module_that_was_loaded_stays_loaded(session: Session, venv: Path) -> None:
    session.run(
        session.snapshot("bare"),
        "module load gear/1.0-cpu",
        session.snapshot("before"),
        session.activate(venv),
        session.snapshot("active"),
        "deactivate",
        session.snapshot("after"),
        "module unload gear/1.0-cpu",
        session.snapshot("end"),
    )
    assert session.loaded("before") == ["site-python", "gear/1.0-cpu"]
    assert session.environment("active")["VIRTUAL_ENV"] == str(venv)
    session.assert_same("after", "before")
    session.assert_same("end", "bare")


@every_shell
def test_activating_twice_is_activating_once(session: Session, venv: Path) -> None:
    session.visit(venv, session.activate(venv), session.snapshot("twice"))
    session.assert_same("twice", "active")
    session.assert_same("after", "before")


@every_shell
def test_from_one_venv_to_another(session: Session, venv: Path, tmp_path: Path) -> None:
    other = extended(session.module, tmp_path / "other venv")
    session.visit(venv, session.activate(other), session.snapshot("other"))
    active = session.environment("other")
    assert active["PATH"].split(":")[:2] == [f"{other}/bin", f"{session.module.home}/bin"]
    assert str(venv) not in active["PATH"]
    assert session.loaded("other") == ["site-python", "gear/1.0-cpu"]
    session.assert_same("after", "before")


@every_shell
def test_from_a_venv_of_one_version_to_one_of_another(
    session: Session, venv: Path, second: dict[str | None, ToyModule], tmp_path: Path
) -> None:
    other = extended(second[session.shell.tool], tmp_path / "other venv")
    _, err = session.visit(venv, session.activate(other), session.snapshot("other"))
    assert "[venv]" not in err
    assert session.loaded("other") == ["site-python", "gear/2.0-cpu"]
    session.assert_same("after", "before")


@every_shell
def test_a_plain_venv_after_an_extended_one_leaves_the_module_loaded(
    session: Session, venv: Path, tmp_path: Path
) -> None:
    plain = make_venv(tmp_path / "plain", sys.executable)
    session.run(
        session.snapshot("before"),
        session.activate(venv),
        session.activate(plain),
        "deactivate",
        session.snapshot("left"),
        session.activate(venv),
        "deactivate",
        "module unload gear",
        session.snapshot("after"),
    )
    left = session.environment("left")
    assert session.loaded("left") == ["site-python", "gear/1.0-cpu"]
    assert left["PATH"].startswith(f"{session.module.home}/bin:")
    session.assert_same("after", "before")


@every_shell
def test_another_version_that_is_loaded_is_left_alone(
    session: Session, venv: Path, second: dict[str | None, ToyModule]
) -> None:
    assert second[session.shell.tool].modulefiles == session.module.modulefiles
    out, err = session.run(
        "module load gear/2.0-cpu",
        session.snapshot("before"),
        session.activate(venv),
        session.snapshot("active"),
        "toy",
        "deactivate",
        session.snapshot("after"),
    )
    assert err == (
        "[venv] gear/1.0-cpu is not loaded, as another version is: 'module unload gear',"
        " then activate again"
    )
    assert out == f"python={venv}/bin/python toy=1.0 extra=False args=[]\n"
    assert session.loaded("active") == ["site-python", "gear/2.0-cpu"]
    session.assert_same("after", "before")


@every_shell
def test_a_module_unloaded_by_hand_leaves_nothing(session: Session, venv: Path) -> None:
    session.visit(venv, "module unload gear")
    session.assert_same("after", "before")


@every_shell
def test_a_moved_venv_loads_nothing_and_says_so(session: Session, tmp_path: Path) -> None:
    """With the module loaded, python and pip would be the module's."""
    made = extended(session.module, tmp_path / "made here")
    moved = made.rename(tmp_path / "moved")
    _, err = session.run(session.activate(moved), session.snapshot("active"))
    assert err == (
        "[venv] this venv is not where it was made, or its Python is gone, and gear/1.0-cpu is not"
        " loaded: make the venv anew"
    )
    assert session.loaded("active") == []
    assert str(session.module.home) not in session.environment("active")["PATH"]


@every_shell
def test_activation_knows_where_the_modulefile_is(session: Session, venv: Path) -> None:
    session.visit(venv, use=False)
    assert session.loaded("active") == ["site-python", "gear/1.0-cpu"]
    session.assert_same("after", "before")


@every_shell
def test_without_its_modulefile_the_venv_activates_and_says_so(
    shell: Shell, tmp_path: Path
) -> None:
    module = make_module(tmp_path / "site", sys.executable)
    venv = extended(module, tmp_path / "venv")
    (module.modulefiles / "gear").rename(tmp_path / "gone")
    session = Session(shell, module, tmp_path)
    out, err = session.visit(venv, "toy")
    words = (
        "[venv] gear/1.0-cpu did not load: the venv is active without it; see 'module avail gear'"
    )
    assert words in err.splitlines()
    assert out == f"python={venv}/bin/python toy=1.0 extra=False args=[]\n"
    assert session.environment("active")["VIRTUAL_ENV"] == str(venv)
    session.assert_same("after", "before")


@every_shell
def test_activation_starts_the_tool_where_there_is_no_module_command(
    shell: Shell,
    modules: dict[str | None, ToyModule],
    venvs: dict[str | None, Path],
    tmp_path: Path,
) -> None:
    folder = start_up_folder(str(shell.tool))
    assert folder is not None
    session, venv = Session(Shell(shell.name, None), modules[None], tmp_path), venvs[None]
    session.run(
        session.activate(venv),
        session.snapshot("active"),
        "deactivate",
        session.snapshot("after"),
        MODULESHOME=str(folder.parent),
        MODULEPATH=str(session.module.site_modulefiles),
    )
    after = session.environment("after")
    assert session.loaded("active") == ["site-python", "gear/1.0-cpu"]
    assert session.loaded("after") == []
    assert after["PATH"] == BARE_PATH
    assert "GEAR_HOME" not in after
    assert str(session.module.modulefiles) not in after["MODULEPATH"].split(":")


@every_shell_without_modules
def test_without_a_module_tool_the_venv_activates_and_says_so(
    session: Session, tmp_path: Path
) -> None:
    venv = extended(session.module, tmp_path / "venv")
    for script in venv.glob("bin/activate*"):  # a machine that has none in the usual places
        script.write_text(
            re.sub(r"(/usr/share|/opt/cray)/[Mlm]\S+", "/nowhere", script.read_text())
        )
    out, err = session.run(
        session.snapshot("before"),
        session.activate(venv),
        "toy",
        "deactivate",
        session.snapshot("after"),
    )
    assert err == (
        "[venv] gear/1.0-cpu is not loaded, as this shell has no 'module': set MODULESHOME,"
        " then activate again"
    )
    assert out == f"python={venv}/bin/python toy=1.0 extra=False args=[]\n"
    session.assert_same("after", "before")


@every_posix_shell
def test_under_set_e_and_set_u(session: Session, venv: Path, tmp_path: Path) -> None:
    """Also in dash, and also where the module does not load."""
    broken = extended(make_module(tmp_path / "broken", sys.executable, "3.0"), tmp_path / "b venv")
    for file in (tmp_path / "broken/modulefiles/gear").iterdir():
        file.unlink()
    out, _ = session.run(
        session.snapshot("before"),
        session.activate(venv),
        session.snapshot("active"),
        "toy",
        session.activate(broken),
        "deactivate",
        session.snapshot("after"),
        "echo went on to the end",
        options=("-eu",),
    )
    assert out.endswith("went on to the end\n")
    assert session.loaded("active") == ["site-python", "gear/1.0-cpu"]
    session.assert_same("after", "before")


@every_posix_shell
def test_under_set_e_and_set_u_without_a_module_command(
    shell: Shell, module: ToyModule, venv: Path, tmp_path: Path
) -> None:
    bare = Session(Shell(shell.name, None), module, tmp_path)
    folder = start_up_folder(str(shell.tool))
    assert folder is not None
    out, _ = bare.run(
        bare.activate(venv),
        bare.snapshot("active"),
        "deactivate",
        "echo went on to the end",
        options=("-eu",),
        MODULESHOME=str(folder.parent),
        MODULEPATH=str(module.site_modulefiles),
    )
    assert out.endswith("went on to the end\n")
    assert bare.loaded("active") == ["site-python", "gear/1.0-cpu"]
