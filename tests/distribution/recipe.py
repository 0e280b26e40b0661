"""Runs recipes/build.sh in tests: whole runs, runs that are killed, and what a prefix then holds.

A toy recipe installs a toy in the place of GEAR (project.py); of a small site, with neither torch
nor ranks, that takes seconds. Network settings of pip are those of the machine unless a test
replaces them.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from distribution.project import REPOSITORY, VERSION, toy_folder, toy_source

BUILD = REPOSITORY / "recipes" / "build.sh"
SITES = REPOSITORY / "recipes" / "sites"
SITE = SITES / "generic-linux.conf"  # what README installs
# Of a login shell: what is found there is what an installation is made of.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SMALL = {"torch": "off", "mpi4py": "off", "horovod": "off", "deepspeed": "off", "c10d": "off"}
BASE_STEPS = ["venv", "torch", "packages", "mpi4py", "horovod", "deepspeed"]
ALL_STEPS = ["preflight", *BASE_STEPS, "core", "c10d", "modulefiles", "smoke", "manifest"]
SMALL_STEPS = [step for step in ALL_STEPS if step not in SMALL]
ALL_UPDATE_STEPS = [step for step in ALL_STEPS if step not in BASE_STEPS]  # on a base that is there
UPDATE_STEPS = [step for step in ALL_UPDATE_STEPS if step not in SMALL]
GEAR_STEPS = UPDATE_STEPS[1:]


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
    lock: Path | None = None  # held by a run where others build in the prefix, too

    def command(self, *options: str) -> list[str]:
        script = str(self.source / "recipes" / "build.sh")
        return [script, str(self.site), "--prefix", str(self.prefix), *options]

    def run(self, *options: str) -> Done:
        with nullcontext() if self.lock is None else self.lock.open("w") as held:
            if held is not None:
                fcntl.flock(held, fcntl.LOCK_EX)
            done = subprocess.run(
                self.command(*options),
                capture_output=True,
                text=True,
                env={**os.environ, **self.env},
            )
        return Done(done.returncode, done.stdout, done.stderr)

    def succeed(self, *options: str) -> str:
        done = self.run(*options)
        assert done.code == 0, f"exit code {done.code}\n{done.output}\n{done.errors}"
        return done.output

    def kill_at(self, text: str, *options: str, it_may_end: bool = False) -> str:
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
        assert it_may_end or text in said, f"'{text}' was never said:\n{said}"
        return said

    def home(self) -> Path:
        """GEAR_HOME of the one installed version."""
        (home,) = (path for path in (self.prefix / "gear").iterdir() if path.is_symlink())
        return home

    def manifest(self) -> bytes:
        return (self.home() / "share" / "gear" / "manifest.json").read_bytes()


def toy_recipe(
    site: Path, prefix: Path, env: Mapping[str, str] | None = None, version: str = VERSION
) -> Recipe:
    """Of the toy, with a cache of its own."""
    cache = {"GEAR_BUILD_CACHE": str(toy_folder() / "wheels")}
    return Recipe(site, prefix, cache | dict(env or {}), toy_source(version))


@dataclass(frozen=True)
class Installation:
    prefix: Path  # --prefix
    home: Path  # GEAR_HOME: PREFIX/gear/<version>-cpu

    @property
    def name(self) -> str:
        """What to load: gear/<version>-cpu."""
        return f"gear/{self.home.name}"

    def recipe(self, site: Path = SITE) -> Recipe:
        """By which it was installed, or with another site file. Tests of other processes may ask
        for the installation meanwhile: they take turns (tools/site_build.sh)."""
        place = self.prefix.parent
        env = {"GEAR_BUILD_CACHE": str(place / "home" / ".cache" / "gear" / "wheels"), "PATH": PATH}
        return Recipe(site, self.prefix, env, lock=place / "lock")

    @property
    def base(self) -> Path:
        """What it stands on."""
        return (self.home / "base").resolve()

    @property
    def modulefiles(self) -> Path:
        """What to `module use`."""
        return self.prefix / "modulefiles"

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"


def done_steps(said: str) -> list[str]:
    """The steps that a run did itself, to their end."""
    return re.findall(r"\] (\w+)\n(?:build:   (?!done in).*\n)*build:   done in", said)


def picture(prefix: Path) -> dict[str, str]:
    """Every installed file, link with its target; builds in progress left out.

    Of packages, size and time of change stand for the content.
    """
    targets = {path.resolve() for path in (prefix / "gear").glob("*") if path.is_symlink()}
    bases = {(target / "base").resolve() for target in targets}
    seen = {str(p): os.readlink(p) for p in (prefix / "gear").glob("*") if p.is_symlink()}
    for root in [prefix / "modulefiles", *targets, *bases]:
        for path in root.rglob("*"):
            if path.is_symlink():
                seen[str(path)] = os.readlink(path)
            elif path.is_file() and "__pycache__" not in path.parts:
                about = path.stat()
                if path.is_relative_to(root / "lib"):
                    seen[str(path)] = f"{about.st_size} {about.st_mtime_ns}"
                else:
                    seen[str(path)] = path.read_bytes().hex()
    return seen


@contextmanager
def running(build: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a user who has loaded the module."""
    env = {"PATH": f"{build}/bin:/usr/bin:/bin"}
    with subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def list_files(recipe: Recipe) -> list[str]:
    """All files but what running Python leaves, and the logs and reports of each attempt."""
    home = recipe.home().resolve()
    return sorted(
        str(path.relative_to(layer))
        for layer in (home, (home / "base").resolve())
        for path in layer.rglob("*")
        if "__pycache__" not in path.parts and path.parent.name not in ("pip", "logs")
    )
