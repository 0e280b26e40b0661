"""Runs scripts in the shells and under the module tools that a user may have.

    @every_shell                       # bash, zsh, tcsh, fish x Environment Modules, Lmod
    def test_it(shell: Shell, tmp_path: Path) -> None:
        done = shell.run(f"module use {shell.quote(tree)}", "module load toy", shell.snapshot(file))
        assert read_snapshot(file)["TOY"] == "1"

At each commit every test meets every shell and every tool, and all tests together every pair of
them; the other half of the pairs is for the night.

A script is a list of lines of that shell; the module tool is set up before the first, and there is
no `set -e`: a failing line is followed by the next, as when a user types. What differs between
shells has a method here. The environment is bare: nothing of the developer's gets in.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from distribution.project import REPOSITORY

Test = TypeVar("Test", bound=Callable[..., Any])

UNPACKED = REPOSITORY / "build" / "module-tools"  # what tools/setup.sh puts beside the system's

BARE_PATH = "/usr/local/bin:/usr/bin:/bin"

SHELLS = {
    "bash": ["bash", "--noprofile", "--norc"],
    "zsh": ["zsh", "-f"],
    "tcsh": ["tcsh", "-f"],
    "fish": ["fish", "--no-config"],
    "sh": ["sh"],
}
EVERY_SHELL = ("bash", "zsh", "tcsh", "fish")  # what users log in with

# Where each tool keeps its start-up files, one per shell: below / or below UNPACKED/<tool>.
MODULE_TOOLS = {
    "modules": "usr/share/modules/init",  # Environment Modules
    "lmod": "usr/share/lmod/lmod/init",
}

# What the shells and the tools set for themselves, and may change by each command.
OWN_STATE = {"_", "SHLVL", "PWD", "OLDPWD", "LOADEDMODULES", "_LMFILES_"}
OWN_STATE_PREFIXES = ("_ModuleTable", "__LMOD_", "__MODULES_", "BASH_FUNC_")


def has_shell(name: str) -> bool:
    return shutil.which(name, path=BARE_PATH) is not None


def start_up_folder(tool: str) -> Path | None:
    """Where `tool`'s start-up files are on this machine; None if it is not here."""
    for root in (Path("/"), UNPACKED / tool):
        if (root / MODULE_TOOLS[tool] / "bash").is_file():
            return root / MODULE_TOOLS[tool]
    return None


@dataclass(frozen=True)
class Shell:
    """A shell, and the module tool that is set up in it; None: `module` is not a command."""

    name: str
    tool: str | None

    def run(
        self,
        *script: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        options: tuple[str, ...] = (),
        timeout_s: float = 100,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the lines of `script`, with `env` added to a bare environment and `options` to the
        shell's own, as `-eu`. Not checked: returncode, stdout and stderr are the caller's."""
        with tempfile.TemporaryDirectory(prefix="gear-shell-") as folder:
            home = Path(folder) / "home"
            home.mkdir()
            file = Path(folder) / "script"
            file.write_text("\n".join([*self._start_up(), *script, ""]))
            bare = {"HOME": str(home), "PATH": BARE_PATH, "LC_ALL": "C.UTF-8"}
            return subprocess.run(
                [*SHELLS[self.name], *options, str(file)],
                env={**bare, **(env or {})},
                cwd=cwd or home,
                timeout=timeout_s,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )

    def _start_up(self) -> list[str]:
        if self.tool is None:
            return []
        folder = start_up_folder(self.tool)
        assert folder is not None, f"{self.tool} is not here: mark the test with pytest.mark"
        return [self.source(folder / self.name)]

    def quote(self, text: str | Path) -> str:
        """One word of this shell, whatever `text` holds but a newline."""
        quoted = shlex.quote(str(text))
        return quoted.replace("!", "\\!") if self.name == "tcsh" else quoted

    def source(self, file: str | Path) -> str:
        return f"{'.' if self.name == 'sh' else 'source'} {self.quote(file)}"

    def export(self, name: str, value: str) -> str:
        form = {"tcsh": "setenv {} {}", "fish": "set -gx {} {}"}.get(self.name, "export {}={}")
        return form.format(name, self.quote(value))

    def unset(self, name: str) -> str:
        return {"tcsh": "unsetenv ", "fish": "set -e "}.get(self.name, "unset ") + name

    def echo_status(self, label: str = "status") -> str:
        """Prints `label=N`, N the exit status of the line before."""
        return f'echo "{label}=$status"' if self.name in ("tcsh", "fish") else f'echo "{label}=$?"'

    def snapshot(self, file: Path) -> str:
        """Writes the environment to `file`, for read_snapshot."""
        return f"/usr/bin/env -0 > {self.quote(file)}"


def read_snapshot(file: Path) -> dict[str, str]:
    """The environment that a snapshot() wrote, less what shells and tools keep."""
    found = {}
    for entry in file.read_text(errors="surrogateescape").split("\0")[:-1]:
        name, _, value = entry.partition("=")
        if name not in OWN_STATE and not name.startswith(OWN_STATE_PREFIXES):
            found[name] = value
    return found


def shell_parameter(name: str, tool: str | None, *, nightly: bool = False) -> object:
    """For pytest.mark.parametrize("shell", ...): skipped where the shell or the tool is not."""
    marks = [
        getattr(pytest.mark, needed)
        for needed in (name, tool)
        if needed not in ("bash", "sh", None)
    ]
    marks += [pytest.mark.nightly] if nightly else []
    return pytest.param(Shell(name, tool), id=f"{name}-{tool or 'no-modules'}", marks=marks)


def each_of(names: Sequence[str]) -> Callable[[Test], Test]:
    """A decorator: the test runs in each of these shells under each tool, half of these pairs by
    night only:

        shift even  bash+modules  zsh+lmod     tcsh+modules  fish+lmod
        shift odd   bash+lmod     zsh+modules  tcsh+lmod     fish+modules
    """

    def parametrize(test: Test) -> Test:
        shift = zlib.crc32(test.__name__.encode())  # the same whichever tests are run
        pairs = [
            shell_parameter(name, tool, nightly=(shift + number + place) % 2 != 0)
            for number, name in enumerate(names)
            for place, tool in enumerate(MODULE_TOOLS)
        ]
        parametrized: Test = pytest.mark.parametrize("shell", pairs)(test)
        return parametrized

    return parametrize


every_shell = each_of(EVERY_SHELL)
every_tool = pytest.mark.parametrize(
    "shell", [shell_parameter("bash", tool) for tool in MODULE_TOOLS]
)
every_shell_without_modules = pytest.mark.parametrize(
    "shell", [shell_parameter(name, None) for name in EVERY_SHELL]
)
