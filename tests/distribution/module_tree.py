"""A tree of module files as an installation has it, without the installation.

PREFIX/gear/NAME/bin/python          a stand-in; NAME is <version>-cpu
PREFIX/modulefiles/gear/NAME         Tcl, and .lua beside it, rendered from modulefiles/gear.module
PREFIX/gear/NAME/share/gear/profiles  NCCL's, of a <version>-gpu
PREFIX/modulefiles/site/mpi/4, ...   what the site brings
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from distribution.project import NAME, REPOSITORY

RENDER = [sys.executable, str(REPOSITORY / "modulefiles" / "render.py")]


class ModuleTree:
    """What `module use` is given is `folder`."""

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.folder = prefix / "modulefiles"

    def home(self, name: str = NAME) -> Path:
        return self.prefix / "gear" / name

    def install(
        self,
        name: str = NAME,
        *,
        modules: str = "",
        presets: Mapping[str, str] | None = None,
    ) -> None:
        """gear/NAME, which depends on `modules` and sets `presets`."""
        program = self.home(name) / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\necho a stand-in\n")
        program.chmod(0o755)
        (self.home(name) / "pyvenv.cfg").touch()
        file = self.folder / "gear" / name
        version, _, kind = name.partition("-")
        values = {
            "VERSION": version,
            "KIND": kind,
            "HOME": str(self.home(name)),
            "BUILD": str(self.home(name)),
            "PYTHON": sys.executable,
            "PYTHON_VERSION": "3.11",
            "MODULES": modules,
            "PROFILES": "",
            **{f"ENV.{variable}": value for variable, value in (presets or {}).items()},
        }
        if kind == "gpu":
            profiles = self.home(name) / "share/gear/profiles"
            values["PROFILES"] = str(profiles)
            own = {key: values[key] for key in ("VERSION", "KIND")}
            own["NCCL"] = str(self.home(name) / "base/nccl")
            for profile in ("debug", "release"):
                render(f"gear-nccl-{profile}", profiles / "gear-nccl" / profile, own)
        render("gear", file, values)

    def default(self, name: str) -> None:
        (self.folder / "gear" / ".version").write_text(
            f'#%Module1.0\nset ModulesVersion "{name}"\n'
        )

    def add_site_module(self, name: str) -> None:
        """Sets SITE_<NAME> and puts a folder on PATH."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        variable = "SITE_" + name.split("/")[-2].upper()
        file.write_text(f"#%Module\nsetenv {variable} {name}\nprepend-path PATH /site/{name}/bin\n")


def render(source: str, file: Path, values: Mapping[str, str]) -> None:
    """In both languages."""
    file.parent.mkdir(parents=True, exist_ok=True)
    module = REPOSITORY / "modulefiles" / f"{source}.module"
    given = [f"{name}={value}" for name, value in values.items()]
    for language, output in [("tcl", file), ("lua", file.with_name(f"{file.name}.lua"))]:
        command = [*RENDER, f"--source={module}", language, f"--output={output}", *given]
        subprocess.run(command, check=True)
