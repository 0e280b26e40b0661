"""pip in a venv that extends the module: what it installs stays in the venv, and wins."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from distribution.toy_module import ToyModule, files_of, make_module

METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: {version}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
CODE = """version = "{version}"
def main():
    import sys
    print(f"toy {{version}} of {{sys.prefix}}")
"""


def make_wheel(folder: Path, version: str) -> Path:
    """A wheel of the package toy, with the command toy."""
    info = f"toy-{version}.dist-info"
    files = {
        "toy/__init__.py": CODE.format(version=version),
        f"{info}/METADATA": METADATA.format(version=version),
        f"{info}/WHEEL": WHEEL,
        f"{info}/entry_points.txt": "[console_scripts]\ntoy = toy:main\n",
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record += f"{name},sha256={digest.decode()},{len(text)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    file = folder / f"toy-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return file


def output_of(*command: str | Path) -> str:
    done = subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ToyModule:
    """The toy module, its package installed by pip. The venv that pip runs in is its own."""
    folder = tmp_path_factory.mktemp("module")
    module = make_module(folder / "site", sys.executable)
    (module.home / "bin/toy").unlink()
    output_of(module.home / "bin/python", "-m", "ensurepip")
    install(module.home / "bin/python", make_wheel(folder, "1.0"))
    return module


def install(python: Path, wheel: Path) -> None:
    output_of(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel)


@pytest.mark.slow
def test_what_pip_installs_wins_and_goes_again(module: ToyModule, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = (venv / "bin/pip").read_text()
    assert module.extend(venv).returncode == 0
    of_module = files_of(module.home)
    python, toy = venv / "bin/python", venv / "bin/toy"
    assert (venv / "bin/pip").read_text() == pip
    assert output_of(toy) == f"toy 1.0 of {venv}\n"
    assert "toy==1.0" in output_of(python, "-m", "pip", "list", "--format=freeze").splitlines()

    install(python, make_wheel(tmp_path, "2.0"))
    assert output_of(toy) == f"toy 2.0 of {venv}\n"
    assert output_of(module.home / "bin/toy") == f"toy 1.0 of {module.home}\n"
    assert "toy==2.0" in output_of(python, "-m", "pip", "list", "--format=freeze").splitlines()
    assert module.extend(venv, "--check").returncode == 0

    output_of(python, "-m", "pip", "uninstall", "-q", "-y", "toy")
    assert module.extend(venv).returncode == 0  # pip took its command along: the launcher is back
    assert output_of(toy) == f"toy 1.0 of {venv}\n"
    assert files_of(module.home) == of_module


@pytest.mark.slow
def test_a_venv_without_pip_of_its_own_installs_into_itself(
    module: ToyModule, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    assert module.extend(venv).returncode == 0
    wheel = make_wheel(tmp_path, "2.0")
    output_of(venv / "bin/pip3", "install", "-q", "--no-index", "--no-deps", wheel)
    assert output_of(venv / "bin/toy") == f"toy 2.0 of {venv}\n"
    assert output_of(module.home / "bin/toy") == f"toy 1.0 of {module.home}\n"


# What setuptools writes for an editable install whose packages do not fill a folder.
FINDER = """import sys
from importlib.util import spec_from_file_location

class _EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "toy":
            return spec_from_file_location(name, {file!r})

def install():
    sys.meta_path.append(_EditableFinder)
"""


@pytest.mark.parametrize("by", ["path", "finder"])
def test_an_editable_install_wins(module: ToyModule, tmp_path: Path, by: str) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    assert module.extend(venv).returncode == 0
    file = tmp_path / "source/toy/__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(CODE.format(version="3.0"))
    (site,) = venv.glob("lib/python*/site-packages")
    if by == "path":
        line = str(file.parents[1])
    else:
        (site / "__editable___toy_finder.py").write_text(FINDER.format(file=str(file)))
        line = "import __editable___toy_finder; __editable___toy_finder.install()"
    (site / "__editable__.toy-3.0.pth").write_text(f"{line}\n")
    assert output_of(venv / "bin/toy") == f"toy 3.0 of {venv}\n"
