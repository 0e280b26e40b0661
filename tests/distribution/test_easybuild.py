"""The easyconfigs: their style, what they resolve to, and the one for the system built whole.

The tarball is made of this tree, and its checksum stands in copies of the easyconfigs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

from distribution.project import REPOSITORY, VERSION
from distribution.shells import Shell, every_tool, read_snapshot, start_up_folder

EASYCONFIGS = sorted((REPOSITORY / "recipes" / "easybuild").glob("*.eb"))
SYSTEM = f"gear-{VERSION}.eb"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.modules,
    pytest.mark.subject("easybuild"),
    pytest.mark.timeout(1800),
]


@dataclass(frozen=True)
class Site:
    """A folder with the easyconfigs, the tarball of the sources, and what is installed."""

    folder: Path
    path: str

    def eb(self, *words: str) -> str:
        """What `eb` says; fails where it ends badly."""
        init = start_up_folder("modules")
        assert init is not None
        settings = {
            "EASYBUILD_PREFIX": str(self.folder / "installed"),
            "EASYBUILD_SOURCEPATH": str(self.folder / "dist"),
            "EASYBUILD_TMPDIR": str(self.folder / "tmp"),
            "EASYBUILD_MODULES_TOOL": "EnvironmentModules",
            "EASYBUILD_MODULE_SYNTAX": "Tcl",
            "EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1",
        }
        done = subprocess.run(
            ["bash", "-c", '. "$0" && exec eb "$@"', init / "bash", *words],
            cwd=self.folder,
            env={**os.environ, **settings, "PATH": self.path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    @property
    def modulefiles(self) -> Path:
        return self.folder / "installed" / "modules" / "all"

    @property
    def home(self) -> Path:
        return self.folder / "installed" / "software" / "gear" / VERSION


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("easybuild")
    script = REPOSITORY / "tools" / "easybuild.sh"
    place = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    make = [REPOSITORY / "tools" / "dist.sh", "--kind=sdist", f"--to={folder / 'dist'}"]
    subprocess.run(make, check=True, stdout=subprocess.PIPE)
    (tarball,) = (folder / "dist").glob("*.tar.gz")
    sha = hashlib.sha256(tarball.read_bytes()).hexdigest()
    copies = folder / "recipes" / "easybuild"
    copies.mkdir(parents=True)
    for easyconfig in EASYCONFIGS:
        text, changed = re.subn(
            r'^checksums = \["[0-9a-f]{64}"\]$',
            f'checksums = ["{sha}"]',
            easyconfig.read_text(),
            flags=re.MULTILINE,
        )
        assert changed == 1, f"{easyconfig}: this looks for the checksum that a release stamps"
        (copies / easyconfig.name).write_text(text)
    (folder / "tmp").mkdir()
    yield Site(folder, f"{place}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    shutil.rmtree(folder)


def test_the_easyconfigs_have_easybuilds_style(site: Site) -> None:
    names = [f"recipes/easybuild/{each.name}" for each in EASYCONFIGS]
    assert "All style checks PASSed!" in site.eb("--check-style", *names)


def test_the_one_for_foss_resolves_to_easyconfigs_that_easybuild_brings(site: Site) -> None:
    (name,) = (each.name for each in EASYCONFIGS if each.name != SYSTEM)
    said = site.eb("--dry-run", "--robot", f"recipes/easybuild/{name}")
    assert f"(module: gear/{name.removeprefix('gear-').removesuffix('.eb')})" in said
    for needed in ("PyTorch", "mpi4py", "OpenMPI", "scikit-build-core", "pybind11"):
        assert f"(module: {needed}/" in said, needed


@pytest.fixture(scope="module")
def built(site: Site) -> Site:
    command = documented(r"eb --sourcepath=dist recipes/easybuild/gear-[\d.]+\.eb")
    words = command.split()[1:]
    said = site.eb(*words)
    assert "COMPLETED: Installation ended successfully" in said
    ran(command)
    return site


@every_tool
def test_its_module_is_loaded_and_gear_check_runs(
    shell: Shell, built: Site, tmp_path: Path
) -> None:
    before, loaded, after = (tmp_path / name for name in ("before", "loaded", "after"))
    done = shell.run(
        shell.export("GEAR_HOME", "/mine"),
        shell.snapshot(before),
        f"module use {shell.quote(built.modulefiles)}",
        "module load gear",
        shell.snapshot(loaded),
        "gear check",
        shell.echo_status(),
        "module unload gear",
        shell.snapshot(after),
    )
    assert "status=0" in done.stdout, done.stdout + done.stderr
    variables = read_snapshot(loaded)
    home = Path(variables["GEAR_HOME"])
    assert home == built.home
    assert variables["GEAR_VERSION"] == VERSION
    assert variables["PYTHONNOUSERSITE"] == "1"
    for file in (
        *("slurm/env.sh", "examples/process_group/run.sh"),
        *("share/gear/smoke/check_gear.py", "bin/display-gpu-info.sh"),
    ):
        assert (home / file).is_file(), file
    # Lmod 8.6 does not give back what it pushed for a module file in Tcl.
    kept = ("PATH",) if shell.tool == "lmod" else ("PATH", "GEAR_HOME", "GEAR_VERSION")
    for name in kept:
        assert read_snapshot(after).get(name) == read_snapshot(before).get(name), name


def test_what_is_installed_goes_through_a_buffer(built: Site) -> None:
    done = Shell("bash", "modules").run(
        f"module use {built.modulefiles}",
        "module load gear",
        'PATH="$(dirname "$(sed -n "1s/^#!//p" "$(command -v gear)")"):$PATH"',
        'python3 "$GEAR_HOME/share/gear/smoke/check_gear.py"',
    )
    assert f"gear {VERSION}: 100 steps went through a buffer" in done.stdout, done.stderr
