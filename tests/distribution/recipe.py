"""Runs recipes/build.sh in tests: whole runs, runs that are killed, and what a prefix then holds.

A small site has GEAR alone, by the wheel of the whole site: once that is in the cache, in seconds.
Network settings of pip are those of the machine unless a test replaces them.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / "recipes" / "build.sh"
SITES = REPOSITORY / "recipes" / "sites"

SMALL = {"torch": "off", "mpi4py": "off", "horovod": "off", "deepspeed": "off"}
ALL_STEPS = ["preflight", "venv", "torch", "mpi4py", "core", "horovod", "deepspeed"]
ALL_STEPS += ["modulefiles", "smoke", "manifest"]
SMALL_STEPS = ["preflight", "venv", "core", "modulefiles", "smoke", "manifest"]


def write_site(path: Path, values: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    return path


def small_site(path: Path, **values: str) -> Path:
    """A small site with further values; their names write `.` as `__`."""
    return write_site(path, SMALL | {key.replace("__", "."): text for key, text in values.items()})


@dataclass(frozen=True)
class Done:
    code: int
    output: str
    errors: str

    def sentence(self) -> str:
        """The first line of the complaint; there is one if, and only if, the run failed."""
        assert self.code in (1, 2), f"exit code {self.code}\n{self.output}\n{self.errors}"
        first = self.errors.splitlines()[0]
        assert first.startswith("build: ["), first
        return first.removeprefix("build: ")


@dataclass(frozen=True)
class Recipe:
    """recipes/build.sh of `source` with one site file and one prefix."""

    site: Path
    prefix: Path
    env: Mapping[str, str] = field(default_factory=dict)
    source: Path = REPOSITORY

    def command(self, *options: str) -> list[str]:
        script = str(self.source / "recipes" / "build.sh")
        return [script, str(self.site), "--prefix", str(self.prefix), *options]

    def run(self, *options: str) -> Done:
        done = subprocess.run(
            self.command(*options), capture_output=True, text=True, env={**os.environ, **self.env}
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def succeed(self, *options: str) -> str:
        done = self.run(*options)
        assert done.code == 0, f"exit code {done.code}\n{done.output}\n{done.errors}"
        return done.output

    def kill_at(self, text: str, *options: str) -> str:
        """Starts a run, kills it and all that it started when it says `text`; what it said."""
        said = ""
        with subprocess.Popen(
            self.command(*options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.env},
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if text in line:
                    os.killpg(process.pid, signal.SIGKILL)
        assert text in said, f"'{text}' was never said:\n{said}"
        return said

    def home(self) -> Path:
        """GEAR_HOME of the one installed version."""
        (home,) = (path for path in (self.prefix / "gear").iterdir() if path.is_symlink())
        return home

    def manifest(self) -> bytes:
        return (self.home() / "share" / "gear" / "manifest.json").read_bytes()


@dataclass(frozen=True)
class Installation:
    prefix: Path  # --prefix
    home: Path  # GEAR_HOME: PREFIX/gear/0.1.0-cpu

    @property
    def name(self) -> str:
        """What to load: gear/0.1.0-cpu."""
        return f"gear/{self.home.name}"

    @property
    def modulefiles(self) -> Path:
        """What to `module use`."""
        return self.prefix / "modulefiles"

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"


def picture(prefix: Path) -> dict[str, str]:
    """Every installed file with its content, link with its target; builds in progress left out."""
    targets = {path.resolve() for path in (prefix / "gear").glob("*") if path.is_symlink()}
    roots = [prefix / "modulefiles", *targets]
    seen = {str(p): os.readlink(p) for p in (prefix / "gear").glob("*") if p.is_symlink()}
    for root in roots:
        for path in root.rglob("*"):
            if path.is_symlink():
                seen[str(path)] = os.readlink(path)
            elif path.is_file() and "__pycache__" not in path.parts:
                seen[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return seen
