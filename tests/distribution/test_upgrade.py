"""INSTALL's page on upgrading: a new version beside the old one, under a user's jobs and venvs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from distribution.ordinary_user import BARE, ORDINARY, as_ordinary, as_root, home_of, loaded
from distribution.project import REPOSITORY, VERSION
from distribution.recipe import ALL_UPDATE_STEPS, Installation, Recipe, done_steps, picture

NEXT = "0.99.0"
NEW = f"gear/{NEXT}-cpu"
TINY = (
    "device=cpu logger=csv env=pendulum algo.learning_starts=200 algo.batch_size=16 "
    "model.hidden=[16] checkpoint_every=200 eval_every=0"
)
TOLD_TO_STOP = 75

pytestmark = [pytest.mark.nightly, pytest.mark.modules, as_root]


@pytest.fixture
def new(installation: Installation, open_folder: Path) -> Iterator[Recipe]:
    """By which the same site installs the next version; in the end it is gone."""
    fresh = [REPOSITORY / "tools" / "fresh_machine.sh", open_folder / "new", "true"]
    subprocess.run(fresh, check=True)
    source = open_folder / "new" / "gear"
    about = source / "pyproject.toml"
    text = about.read_text()
    about.write_text(text.replace(f'version = "{VERSION}"', f'version = "{NEXT}"'))
    # Who asks for the installation meanwhile would make the old version the default again.
    recipe = installation.recipe()
    assert recipe.lock is not None
    with recipe.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        recipe = replace(recipe, source=source, lock=None)
        recipe.succeed("--uninstall")  # of a test that was killed
        before = picture(installation.prefix)
        yield recipe
        recipe.succeed("--uninstall")
        assert picture(installation.prefix) == before


def start(user: Path, *script: str) -> subprocess.Popen[bytes]:
    """A job of that user, whose last line is what runs."""
    *first, last = script
    with (user / "job.log").open("wb") as log:
        return subprocess.Popen(
            [*ORDINARY, "bash", "-ec", "\n".join(["umask 077", *first, f"exec {last}"])],
            env=BARE | {"HOME": str(user), "TMPDIR": str(user), "OMP_NUM_THREADS": "1"},
            cwd=user,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for_a_checkpoint(run: Path, job: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 200
    while not list(run.glob("checkpoints/step_*")):
        assert job.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_site_is_upgraded_under_its_users(
    installation: Installation, new: Recipe, open_folder: Path
) -> None:
    user = home_of(open_folder)
    by_default = loaded(installation.prefix)
    by_name = [*by_default[:-1], f"module load {NEW}"]
    version = "gear --version"
    as_ordinary(
        user,
        *by_default,
        f"gear train {TINY} total_steps=400 hydra.run.dir=before",
        "python -m venv --without-pip mine; extend-venv-activate mine",
        OMP_NUM_THREADS="1",
    )
    # It trains all the while and gives way to others, as a session: nice alone counts inside of it.
    way = "echo 19 2>/dev/null >/proc/self/autogroup || true"
    training = f"nice -n 19 gear train {TINY} total_steps=10000000 hydra.run.dir=job"
    job = start(user, *by_default, way, training)
    try:
        wait_for_a_checkpoint(user / "job", job)

        # Beside the old one, for those who name it.
        quiet = open_folder / "quiet.conf"
        quiet.write_text(f"{new.site.read_text()}default_module = off\n")
        assert done_steps(replace(new, site=quiet).succeed()) == ALL_UPDATE_STEPS
        home = installation.prefix / NEW
        assert (home / "base").resolve() == installation.base
        assert VERSION in as_ordinary(user, *by_default, version)
        said = as_ordinary(
            user,
            *by_name,
            version,
            "gear check --build",
            f"gear train {TINY} checkpoint=before hydra.run.dir=trial total_steps=600",
            OMP_NUM_THREADS="1",
        )
        assert NEXT in said.splitlines()[0]
        assert "[!]" not in said
        assert (user / "trial" / "checkpoints" / "step_600").exists()

        # The default for all: nothing is built, and what runs goes on.
        said = new.succeed()
        assert done_steps(said) == []
        assert f"the default module is {NEW} now" in said
        assert NEXT in as_ordinary(user, *by_default, version)
        assert VERSION in as_ordinary(user, "source mine/bin/activate", version)
        moved = ("extend-venv-activate mine --undo", "extend-venv-activate mine")
        activated = "source mine/bin/activate"
        said = as_ordinary(user, *by_default, *moved, activated, version)
        assert NEXT in said.splitlines()[-1]
        with contextlib.suppress(
            OSError
        ):  # who gives way to all may wait long for its turn to save
            Path(f"/proc/{job.pid}/autogroup").write_text("0")
        os.killpg(job.pid, signal.SIGTERM)
        log = user / "job.log"
        assert job.wait(timeout=300) == TOLD_TO_STOP, log.read_text(errors="replace")
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    done = sorted(int(path.name[5:]) for path in (user / "job" / "checkpoints").glob("step_*"))
    more = shlex.quote(f"total_steps={done[-1] + 100}")
    as_ordinary(user, *by_default, f"gear train {TINY} checkpoint=job {more}", OMP_NUM_THREADS="1")
