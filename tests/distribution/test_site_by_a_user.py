"""The site build of README by an ordinary user, from the wheels that the build by root has kept:
killed as each of its steps begins, resumed, used, and uninstalled."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from distribution.ordinary_user import ORDINARY, UID, as_ordinary, as_root, home_of, loaded
from distribution.project import REPOSITORY
from distribution.recipe import ALL_STEPS, PATH, SITE, Installation, done_steps

pytestmark = [pytest.mark.subject("recipes"), pytest.mark.modules, as_root]


class Build:
    """recipes/build.sh of that user's clone, with his home and his wheels."""

    def __init__(self, folder: Path, installation: Installation) -> None:
        self.home = home_of(folder)
        self.prefix = self.home / "apps"
        kept = self.home / ".cache" / "gear" / "wheels"
        shutil.copytree(installation.recipe().env["GEAR_BUILD_CACHE"], kept)
        fresh = [REPOSITORY / "tools" / "fresh_machine.sh", folder / "copy", "true"]
        subprocess.run(fresh, check=True)
        (folder / "copy" / "gear").rename(self.home / "gear")
        subprocess.run(["chown", "-R", f"{UID}:{UID}", self.home], check=True)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = ["recipes/build.sh", f"recipes/sites/{SITE.name}", "--prefix", self.prefix]
        # How pip gets to its packages is a matter of the machine.
        network = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
        network |= {name: os.environ[name] for name in CERTIFICATES if name in os.environ}
        return subprocess.Popen(
            [*ORDINARY, *command, *options],
            cwd=self.home / "gear",
            env=network | {"HOME": str(self.home), "PATH": PATH, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            umask=0o077,
        )

    def succeed(self, *options: str) -> str:
        process = self.start(*options)
        said, _ = process.communicate()
        assert process.returncode == 0, said
        return said

    def kill_at(self, text: str) -> str:
        """Goes on with the build until it says `text`; what it said."""
        said = ""
        with self.start("--resume") as process:
            assert process.stdout is not None
            for line in process.stdout:
                said += line
                if text in line:
                    os.killpg(process.pid, signal.SIGKILL)
        assert text in said, f"'{text}' was never said:\n{said}"
        return said


CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def test_a_user_builds_uses_and_uninstalls_it(
    installation: Installation, open_folder: Path
) -> None:
    build = Build(open_folder, installation)
    starts = re.findall(r"^build: (\[\d+/\d+\] \w+)$", build.succeed("--dry-run"), re.M)
    assert [start.split()[1] for start in starts] == ALL_STEPS
    said = "".join(build.kill_at(start) for start in [*starts, "switching"])
    for compiled in ("mpi4py", "horovod", "deepspeed", "gear"):
        assert f"build:   {compiled}: the wheel of an earlier build" in said
    assert "gear_mpi: the library of an earlier build" in said
    assert done_steps(build.succeed("--resume")) == []  # but the switch

    said = as_ordinary(
        build.home,
        *loaded(build.prefix),
        "gear check --build",
        "gear check --manifest | tail -n 1",
        'mpirun --oversubscribe -n 2 python "$GEAR_HOME/share/gear/smoke/check_gear_mpi.py"',
    )
    assert "the installation is as the manifest says" in said
    assert "[!]" not in said
    build.succeed("--uninstall")
    assert list(build.prefix.iterdir()) == []
