"""Compiles the library into the wheel, by tools/c10d.sh."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "gear_mpi"


class Build(build_py):
    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # what an earlier one has left
        super().run()
        if self.editable_mode:
            return  # the package looks where tools/c10d.sh builds
        environment = dict(os.environ)
        if find_spec("torch") is None:
            # pip builds apart from what is installed, and says so by this variable.
            environment.pop("PYTHONPATH", None)
        to = Path(self.build_lib, "gear_mpi", "c10d").resolve()
        command = [str(ROOT / "tools" / "c10d.sh"), f"--python={sys.executable}", f"--to={to}"]
        if subprocess.run(command, env=environment).returncode != 0:
            sys.exit(
                "gear-mpi: there is no library, as said above; where torch is installed and was "
                "not found, pip install --no-build-isolation ./process_group"
            )


class Compiled(Distribution):
    def has_ext_modules(self) -> bool:
        return True


version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
assert version is not None
BUILD.mkdir(parents=True, exist_ok=True)
setup(
    version=version[1],
    cmdclass={"build_py": Build},
    distclass=Compiled,
    options={"build": {"build_base": str(BUILD)}, "egg_info": {"egg_base": str(BUILD)}},
)
