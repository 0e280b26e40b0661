"""The fixture `site`: the cluster with a module `gear` that is this very checkout, for jobs that a
module of tests submits at once and looks at one by one.

Test modules take it with `pytest_plugins`, beside distribution.slurm_cluster.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from distribution.slurm_cluster import ENDED, Cluster, Job

SLURM = Path(__file__).parents[2] / "slurm"

EVERY = 400
# A run that a test interrupts, whenever that is, has no end of its own: once its job was requeued,
# it ends some steps after its newest checkpoint in TEST_RUN, at a multiple of EVERY. All ranks find
# the same one: a rank saves another when all of them have begun.
GEAR = f"""#!/bin/bash
more=()
if [ -n "${{TEST_RUN:-}}" ] && [ "$1" = train ]; then
  more=(total_steps=1000000)
  if [ "${{SLURM_RESTART_COUNT:-0}}" != 0 ]; then
    newest=$(ls "$TEST_RUN/checkpoints" | sort -V | tail -n 1)
    more=(total_steps=$(((${{newest#step_}} / {EVERY} + 2) * {EVERY})))
  fi
fi
exec {sys.executable} -m gear.cli.app "$@" "${{more[@]}}"
"""
PROGRAMS = {
    "gear": GEAR,
    "python3": f'#!/bin/bash\nexec {sys.executable} "$@"\n',
    "torchrun": f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n',
}


@dataclass(frozen=True)
class Site:
    """Where jobs are submitted: `cluster.home` is the folder."""

    cluster: Cluster
    environment: dict[str, str]

    def start(
        self, template: str, *words: str, options: Sequence[str] = (), **environment: str
    ) -> int:
        """`gear slurm submit`, as a user types it; returns the job's number."""
        done = self.cluster.run(
            *(sys.executable, "-m", "gear.cli.app", "slurm", "submit"),
            *(template, *options, *words),
            env={**self.environment, **environment},
        )
        assert done.returncode == 0, done.stderr
        return int(re.fullmatch(r"Submitted batch job (\d+)\n", done.stdout)[1])

    def log(self, number: int) -> str:
        path = self.cluster.home / f"gear-{number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self, number: int | str) -> str:
        shown = self.cluster.run("scontrol", "show", "job", str(number)).stdout
        return re.search(r"JobState=(\S+)", shown)[1]

    def has_ended(self, number: int | str) -> bool:
        return self.state(number) in ENDED

    def wait(self, is_so: Callable[[], object], what: str, timeout_s: float = 420) -> None:
        until = time.monotonic() + timeout_s
        while not is_so():
            if time.monotonic() > until:
                pytest.fail(
                    f"not within {timeout_s:g} s: {what}\n{self.cluster.run('squeue').stdout}"
                )
            time.sleep(0.2)

    def finish_task(self, number: int, index: int, name: str) -> str:
        """Of an array; what it wrote."""
        self.wait(lambda: self.has_ended(f"{number}_{index}"), "the end of a task")
        assert self.state(f"{number}_{index}") == "COMPLETED"
        return (self.cluster.home / f"{name}-{number}_{index}.out").read_text(errors="replace")

    def finish(self, number: int) -> Job:
        return self.cluster.finish(number, timeout_s=420)

    def succeed(self, number: int) -> Job:
        job = self.finish(number)
        assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
        return job


@pytest.fixture(scope="module")
def site(slurm_conf: str, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    for name in ("home", "bin", "modulefiles/gear"):
        (folder / name).mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "slurm").symlink_to(SLURM)
    (folder / "modulefiles" / "gear" / "1").write_text(
        f"#%Module1.0\nsetenv GEAR_HOME {folder}\nprepend-path PATH {folder}/bin\n"
    )
    cluster = Cluster(slurm_conf, folder / "home")
    cluster.use_modules("modules")
    return Site(cluster, {"MODULEPATH": str(folder / "modulefiles"), "GEAR_HOME": str(folder)})
