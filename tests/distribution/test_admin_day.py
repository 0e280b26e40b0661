"""A day of who looks after a site: an installation that is killed again and again, its users, an
update and an uninstallation under their jobs. A toy stands in for GEAR, but in the last test."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from distribution.conftest import Installation
from distribution.ordinary_user import (
    ORDINARY,
    UID,
    as_ordinary,
    as_root,
    home_of,
    loaded,
)
from distribution.recipe import GEAR_STEPS, Recipe, done_steps, list_files, small_site, toy_recipe
from gear.cli import check_manifest

if TYPE_CHECKING:
    from distribution.slurm_cluster import Cluster

pytest_plugins = ["distribution.slurm_cluster"]
pytestmark = [pytest.mark.subject("recipes"), pytest.mark.slow, pytest.mark.modules, as_root]

KILLS = 10
LONGEST_S = 2.0  # after a step has begun; most take about as long


def build_under_kills(recipe: Recipe, seed: int) -> None:
    """Starts it, ends it by Ctrl-C or kill -9 at a random moment of the first step that it does or
    of the one after, and goes on, KILLS times."""
    chance = random.Random(seed)
    for _ in range(KILLS):
        steps = chance.choice([1, 2])
        with subprocess.Popen(
            recipe.command("--resume"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **recipe.env},
            start_new_session=True,
            umask=0o077,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                steps -= re.fullmatch(r"build: \[\d/7\] \w+\n", line) is not None
                if steps == 0:
                    time.sleep(chance.uniform(0.0, LONGEST_S))
                    os.killpg(process.pid, chance.choice([signal.SIGINT, signal.SIGKILL]))
                    break
    umask = os.umask(0o077)
    try:
        recipe.succeed("--resume")
    finally:
        os.umask(umask)


@pytest.mark.slurm
def test_the_day(cluster: Cluster, open_folder: Path) -> None:
    prefix, site = open_folder / "apps", open_folder / "site.conf"
    temporary = open_folder / "tmp"  # where a pip that is killed leaves what it unpacked
    temporary.mkdir()
    recipe = toy_recipe(small_site(site), prefix, {"TMPDIR": str(temporary)})
    build_under_kills(recipe, seed=12)
    # It is what a build that nobody disturbed is, and what its manifest says.
    home = recipe.home()
    whole = toy_recipe(site, open_folder / "whole")
    whole.succeed()
    assert list_files(recipe) == list_files(whole)
    whole.succeed("--uninstall")
    manifest = check_manifest.read(home / check_manifest.PLACE)
    assert list(check_manifest.find_differences(manifest, home)) == []
    assert "nothing to do" in recipe.succeed()

    # A user loads it, runs it, and extends a venv.
    user = home_of(open_folder)
    said = as_ordinary(
        user,
        *loaded(prefix),
        "gear here; command -v python; python -m venv --without-pip mine",
        "extend-venv-activate mine; source mine/bin/activate; command -v python; gear there",
    )
    build = home.resolve()
    assert f"{build}/bin/python\n" in said
    assert f"{user}/mine/bin/python\n" in said
    (package,) = build.glob("lib/python3.*/site-packages/gear")
    assert re.findall(r"^toy (.*)$", said, re.M) == [f"{package} here", f"{package} there"]

    # A job runs while the module is updated, and ends on what it began with.
    cluster = replace(cluster, home=user, become=tuple(ORDINARY))
    cluster.use_modules("modules")
    os.chown(user / ".bash_profile", UID, UID)
    script = home / "slurm" / "1node.sbatch"
    number = cluster.start(script, f"until={user}/go")
    wait_for(lambda: "until=" in (user / f"gear-{number}.out").read_text())
    update = toy_recipe(small_site(site, env__A_CHANGE="1"), prefix)
    assert done_steps(update.succeed())[-len(GEAR_STEPS) :] == GEAR_STEPS
    assert home.resolve() != build

    # Uninstalled under it, its files stay, and the command says why.
    done = update.run("--uninstall")
    assert "its files stay: processes of this node use it: " in done.sentence()
    assert (build / "bin" / "gear").exists()
    (user / "go").touch()
    job = cluster.finish(number)
    assert (job.state, job.exit_code) == ("COMPLETED", 0), job.log
    assert job.log.count(f"toy {build}/") == 2  # ranks
    assert f"until={user}/go" in job.log
    update.succeed("--uninstall")
    assert list(prefix.iterdir()) == []


def wait_for(happened) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            if happened():
                return
        except FileNotFoundError:
            pass
        time.sleep(0.1)
    pytest.fail("it did not happen within 60 s")


def test_an_ordinary_user_trains(installation: Installation, open_folder: Path) -> None:
    """On the real installation, and leaves nothing in shared memory."""
    before = set(Path("/dev/shm").iterdir())
    user = home_of(open_folder)
    words = "algo.learning_starts=200 algo.batch_size=16 model.hidden=[16] total_steps=600"
    said = as_ordinary(
        user,
        *loaded(installation.prefix),
        "gear check --manifest | tail -n 1",
        f"mpirun --oversubscribe --bind-to none -n 2 gear train dist=ddp {words} logger=csv",
        OMP_NUM_THREADS="1",
    )
    assert "the installation is as the manifest says" in said
    assert "ranks 2" in re.sub(r"[\s│┃]+", " ", said)
    mine = [path for path in Path("/dev/shm").iterdir() if path.lstat().st_uid == UID]
    assert [path for path in mine if path not in before] == []
