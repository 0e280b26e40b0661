"""A small module tree of the layout that recipes/build.sh makes, for tests of extend-venv-activate.

prefix/gear/1.0-cpu -> .builds/1.0-cpu-0a1b2c3d4e5f     a venv with the package `toy` 1.0, its
                                                        command `toy`, and extend-venv-activate
prefix/modulefiles/gear/1.0-cpu, and .lua beside it     depends on site-python
prefix/site/site-python                                 a module of the site's
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

TCL = """#%Module
conflict gear
depends-on site-python
setenv GEAR_HOME {{{home}}}
setenv PYTHONNOUSERSITE 1
prepend-path PATH {{{home}/bin}}
"""
LUA = """conflict("gear")
depends_on("site-python")
setenv("GEAR_HOME", [[{home}]])
setenv("PYTHONNOUSERSITE", "1")
prepend_path("PATH", [[{home}/bin]])
"""
SITE_TCL = """#%Module
setenv SITE_PYTHON 1
prepend-path PATH {{{folder}}}
prepend-path LD_LIBRARY_PATH {{{folder}/lib}}
"""
SITE_LUA = """setenv("SITE_PYTHON", "1")
prepend_path("PATH", [[{folder}]])
prepend_path("LD_LIBRARY_PATH", [[{folder}/lib]])
"""

# What the command prints: who runs it, and which `toy` and `extra` it sees.
COMMAND = """import sys
import toy
try:
    import extra
except ImportError:
    extra = None
print(f"python={sys.executable} toy={toy.version} extra={extra is not None} args={sys.argv[1:]}")
"""


@dataclass(frozen=True)
class ToyModule:
    prefix: Path
    name: str  # gear/1.0-cpu

    @property
    def home(self) -> Path:
        return self.prefix / self.name

    @property
    def program(self) -> Path:
        return self.home / "bin/extend-venv-activate"

    @property
    def modulefiles(self) -> Path:
        return self.prefix / "modulefiles"

    @property
    def site_modulefiles(self) -> Path:
        return self.prefix / "site"

    def extend(
        self, *arguments: str | Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment},
            capture_output=True,
            text=True,
            check=False,
        )


def make_module(prefix: Path, python: str, version: str = "1.0") -> ToyModule:
    """Installs a toy module of `version` below `prefix`, made with the interpreter `python`."""
    name = f"{version}-cpu"
    build = prefix / "gear/.builds" / f"{name}-0a1b2c3d4e5f"
    make_venv(build, python)
    (prefix / "gear" / name).symlink_to(build.relative_to(prefix / "gear"))
    module = ToyModule(prefix, f"gear/{name}")

    package = site_packages(build) / "toy"
    package.mkdir()
    (package / "__init__.py").write_text(f'version = "{version}"\n')
    (package / "__main__.py").write_text(
        "import sys, toy\nassert sys.toy_was_set_up\nprint('toy', toy.version, 'in', sys.prefix)\n"
    )
    (package.parent / "toy.pth").write_text("import sys; sys.toy_was_set_up = True\n")
    command(build / "bin/toy", f"#!{build}/bin/python\n{COMMAND}")
    command(
        build / "bin/toy-of-a-long-path",  # as pip writes it where the first line would not fit
        f"#!/bin/sh\n'''exec' '{build}/bin/python' \"$0\" \"$@\"\n' '''\n{COMMAND}",
    )
    command(build / "bin/toy-shell", "#!/usr/bin/env bash\necho not Python\n")
    shutil.copy(REPOSITORY / "extend-venv-activate", build / "bin")

    tree = module.modulefiles / "gear"
    tree.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(TCL.format(home=module.home))
    (tree / f"{name}.lua").write_text(LUA.format(home=module.home))
    site = module.site_modulefiles
    site.mkdir(exist_ok=True)
    (site / "site-python").write_text(SITE_TCL.format(folder=prefix / "site-python"))
    (site / "site-python.lua").write_text(SITE_LUA.format(folder=prefix / "site-python"))
    return module


def make_venv(folder: Path, python: str, *options: str) -> Path:
    subprocess.run([python, "-m", "venv", "--without-pip", *options, folder], check=True)
    return folder


def site_packages(venv: Path) -> Path:
    (found,) = venv.glob("lib/python*/site-packages")
    return found


def command(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def files_of(venv: Path) -> dict[str, bytes | str]:
    """Every file of `venv` with its content and mode: to say that nothing changed."""
    found: dict[str, bytes | str] = {}
    for path in sorted(venv.rglob("*")):
        if "__pycache__" in path.parts or path.is_dir():
            continue
        name = str(path.relative_to(venv))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes()
        found[f"mode of {name}"] = oct(path.lstat().st_mode)
    return found
