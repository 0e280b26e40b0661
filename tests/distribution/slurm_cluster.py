"""The fixture `cluster`: a Slurm of two virtual nodes, and jobs on it as a user submits them.

Test modules take it with `pytest_plugins = ["distribution.slurm_cluster"]` and the marker `slurm`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distribution.shells import start_up_folder

REPOSITORY = Path(__file__).parents[2]
# As `scontrol show job` names them. Others may come before: SIGNALING, REQUEUED...
ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY")
ENDED += ("PREEMPTED", "TIMEOUT")
CLUSTER = REPOSITORY / "tests" / "slurm" / "cluster.sh"
BARE_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Job:
    """A job that has ended.

    Attributes:
        state: as Slurm calls it: COMPLETED, FAILED, ...
        exit_code: of the batch script.
        log: what it wrote to its output file.
    """

    number: int
    state: str
    exit_code: int
    log: str


@dataclass(frozen=True)
class Cluster:
    """A login node: commands run in a bare environment, in `home`, which all nodes see, and by
    another user where `become` is a command that becomes one."""

    conf: str
    home: Path
    become: tuple[str, ...] = ()
    started: list[int] = field(default_factory=list)

    def use_modules(self, tool: str) -> None:
        """`module` of `modules` or `lmod` in login shells, whatever the machine's own is."""
        start_up = start_up_folder(tool)
        assert start_up is not None, f"{tool} is not here: mark the test with pytest.mark"
        line = f"source {shlex.quote(str(start_up / 'bash'))}\n"
        (self.home / ".bash_profile").write_text(line)

    def run(
        self, *command: str | Path, env: Mapping[str, str] | None = None, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Not checked: returncode, stdout and stderr are the caller's."""
        bare = {"HOME": str(self.home), "PATH": BARE_PATH, "LC_ALL": "C.UTF-8"}
        return subprocess.run(
            [*self.become, *command],
            env={**bare, "SLURM_CONF": self.conf, **(env or {})},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(self, *words: str | Path, env: Mapping[str, str] | None = None) -> int:
        """`sbatch words...`: options, the script, its arguments. Returns the job's number."""
        done = self.run("sbatch", "--parsable", *words, env=env)
        assert done.returncode == 0, done.stderr
        self.started.append(int(done.stdout))
        return self.started[-1]

    def cancel_all(self) -> None:
        """Ends the jobs that were started here and run still: they would starve the next ones."""
        if self.started:
            self.run("scancel", "--quiet", *map(str, self.started))

    def finish(self, number: int, timeout_s: float = 600) -> Job:
        """Waits for a job; cancels it and fails if it takes longer."""
        deadline = time.monotonic() + timeout_s
        shown = self.run("scontrol", "show", "job", str(number)).stdout
        log = Path(re.search(r"StdOut=(.*)", shown)[1])
        while True:
            shown = self.run("scontrol", "show", "job", str(number)).stdout
            facts = dict(re.findall(r"(JobState|ExitCode)=(\S+)", shown))
            if facts["JobState"] in ENDED:
                break
            if time.monotonic() > deadline:
                self.run("scancel", str(number))
                pytest.fail(f"job {number} still runs:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        exit_code = int(facts["ExitCode"].split(":")[0])
        return Job(number, facts["JobState"], exit_code, log.read_text(errors="replace"))

    def submit(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Job:
        """`start` and `finish`."""
        return self.finish(self.start(*words, env=env))

    def batch_script(self, name: str, *lines: str) -> Path:
        """A file in `home` for `start`."""
        script = self.home / name
        script.write_text("\n".join(["#!/bin/bash -l", *lines, ""]))
        return script


@pytest.fixture(scope="session")
def slurm_conf() -> Iterator[str]:
    """A running Slurm; one that was running before goes on after the tests."""
    was_up = subprocess.run([CLUSTER, "status"], capture_output=True, check=False).returncode == 0
    done = subprocess.run([CLUSTER, "up"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield done.stdout.strip()
    if not was_up:
        subprocess.run([CLUSTER, "down"], check=True)


@pytest.fixture
def cluster(slurm_conf: str, tmp_path: Path) -> Iterator[Cluster]:
    home = tmp_path / "home of a user"
    home.mkdir()
    cluster = Cluster(slurm_conf, home)
    yield cluster
    cluster.cancel_all()
