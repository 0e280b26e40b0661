"""What extend-venv-activate writes into a venv, takes out again, and refuses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distribution.pythons import PYTHONS, found_python, python_of
from distribution.toy_module import (
    REPOSITORY,
    ToyModule,
    command,
    files_of,
    make_module,
    make_venv,
    site_packages,
)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ToyModule:
    return make_module(tmp_path_factory.mktemp("site"), sys.executable)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "my venv", sys.executable)


def make_virtualenv(folder: Path, python: str) -> Path:
    virtualenv = pytest.importorskip("virtualenv")
    options = ["--no-download", "--no-seed", "--python", python, "--app-data", f"{folder}.data"]
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    virtualenv.cli_run([*options, str(folder)], setup_logging=False, env=environment)
    return folder


# In the fast tier, each Python and each kind once or twice.
@pytest.mark.parametrize(
    ("version", "make"),
    [
        pytest.param(version, make, marks=[pytest.mark.slow] if (number + place) % 2 else [])
        for number, version in enumerate(PYTHONS)
        for place, make in enumerate([make_venv, make_virtualenv])
    ],
)
def test_every_python_and_kind_of_venv(make, version: str, tmp_path: Path) -> None:
    python = python_of(version)
    module = make_module(tmp_path / "site", python)
    venv = make(tmp_path / "my venv", python)
    plain = files_of(venv)
    for _ in ("once", "and again"):
        done = module.extend(venv)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"'{venv}' extends gear/1.0-cpu\n"
    assert module.extend("--check", venv).returncode == 0
    extended = files_of(venv)
    changed = {name for name in extended if extended[name] != plain.get(name)}
    pth = f"lib/python{version}/site-packages/zz_gear_module.pth"
    scripts = {"bin/activate", "bin/activate.csh", "bin/activate.fish"}
    new = {"bin/toy", "bin/toy-of-a-long-path", pth}
    assert changed == scripts | new | {f"mode of {name}" for name in new}

    sourced = subprocess.run(
        ["bash", "-c", '. "$0/bin/activate" 2>/dev/null; python -m toy', venv],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sourced.stdout == f"toy 1.0 in {venv}\n"
    assert module.extend(venv, "--undo").returncode == 0
    assert files_of(venv) == plain
    assert module.extend(venv, "--undo").returncode == 0
    assert files_of(venv) == plain


def test_a_script_that_ends_without_a_newline_stays_so(module: ToyModule, venv: Path) -> None:
    for script in venv.glob("bin/activate*"):
        script.write_text(script.read_text().rstrip("\n") + "\nFOO=bar \\' \xe9 \x01")
    plain = files_of(venv)
    assert module.extend(venv).returncode == 0
    assert (venv / "bin/activate").read_text().endswith("\nFOO=bar \\' \xe9 \x01")
    assert module.extend(venv, "--undo").returncode == 0
    assert files_of(venv) == plain


def test_check_changes_nothing_and_names_what_is_amiss(module: ToyModule, venv: Path) -> None:
    plain = files_of(venv)
    done = module.extend(venv, "--check")
    assert done.returncode == 1
    assert "does not extend gear/1.0-cpu: run extend-venv-activate" in done.stderr
    assert files_of(venv) == plain
    module.extend(venv)
    make_venv(venv, sys.executable)  # once more: writes the activate scripts anew
    (venv / "bin/toy").unlink()
    (site_packages(venv) / "zz_gear_module.pth").write_text("# gear module gear/1.0-cpu: \n")
    amiss = files_of(venv)
    done = module.extend(venv, "--check")
    assert done.returncode == 1
    for name in ("activate", "activate.fish", "activate.csh", "toy", "zz_gear_module.pth"):
        assert f"/{name} is not as it should be\n" in done.stderr
    assert f"'{venv}' extends gear/1.0-cpu in part" in done.stderr
    assert files_of(venv) == amiss
    assert module.extend(venv).returncode == 0
    assert module.extend(venv, "--check").returncode == 0


def test_a_launcher_never_takes_the_place_of_a_file(module: ToyModule, venv: Path) -> None:
    command(venv / "bin/toy", "#!/bin/sh\necho mine\n")
    plain = files_of(venv)
    module.extend(venv)
    assert (venv / "bin/toy").read_text() == "#!/bin/sh\necho mine\n"
    assert module.extend(venv, "--check").returncode == 0
    command(venv / "bin/toy-of-a-long-path", "#!/bin/sh\necho pip wrote this later\n")
    assert module.extend(venv, "--check").returncode == 0
    module.extend(venv, "--undo")
    (venv / "bin/toy-of-a-long-path").unlink()
    assert files_of(venv) == plain


def test_a_launcher_goes_when_its_command_goes(venv: Path, tmp_path: Path) -> None:
    module = make_module(tmp_path / "site", sys.executable)
    module.extend(venv)
    (module.home / "bin/toy").unlink()
    assert module.extend(venv, "--check").returncode == 1
    assert module.extend(venv).returncode == 0
    assert not (venv / "bin/toy").exists()
    assert (venv / "bin/toy-of-a-long-path").exists()


def test_the_venv_names_the_link_not_the_build(module: ToyModule, venv: Path) -> None:
    """So that it follows a module that is built anew."""
    build = module.home.resolve()
    subprocess.run([build / "bin/extend-venv-activate", venv], check=True)
    written = [site_packages(venv) / "zz_gear_module.pth", *venv.glob("bin/*")]
    texts = [file.read_text() for file in written if not file.is_symlink()]
    assert any(f"{module.home}/" in text for text in texts)
    assert not any(".builds" in text for text in texts)
    assert module.extend(venv, "--check").returncode == 0


def test_a_moved_venv_is_refused(module: ToyModule, venv: Path, tmp_path: Path) -> None:
    """Its scripts lead to where it was made: what they activate is another venv, or the module."""
    plain = make_venv(tmp_path / "plain", sys.executable)
    module.extend(venv)
    for made, moved in ((venv, tmp_path / "moved"), (plain, tmp_path / "moved too")):
        made.rename(moved)
        before = files_of(moved)
        for arguments in ([moved], [moved, "--check"]):
            done = module.extend(*arguments)
            assert done.returncode == 1
            assert done.stderr.startswith(f"[venv] '{moved}' was made in '{made}', and its")
            assert "make a new venv in the place where it stays, by python -m venv" in done.stderr
        assert files_of(moved) == before
        # What leads here is the same place.
        made.symlink_to(moved)
        assert module.extend(moved).returncode == 0
        assert module.extend(made, "--check").returncode == 0


def test_a_copied_venv_is_refused(module: ToyModule, venv: Path, tmp_path: Path) -> None:
    module.extend(venv)
    shutil.copytree(venv, tmp_path / "copy", symlinks=True)
    done = module.extend(tmp_path / "copy", "--check")
    assert done.returncode == 1
    assert f"was made in '{venv}'" in done.stderr


def test_a_venv_that_may_be_moved_takes_its_launchers_along(
    module: ToyModule, venv: Path, tmp_path: Path
) -> None:
    """As uv makes them: its activate script asks where it is."""
    with (venv / "pyvenv.cfg").open("a") as settings:
        settings.write("relocatable = true\n")
    activate = venv / "bin" / "activate"
    here = 'VIRTUAL_ENV=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)'
    text, number = re.subn(r"^( *)VIRTUAL_ENV=.*", rf"\1{here}", activate.read_text(), flags=re.M)
    assert number
    activate.write_text(text)
    assert module.extend(venv).returncode == 0
    moved = venv.rename(tmp_path / "moved")
    (tmp_path / "link").symlink_to(moved / "bin" / "toy")
    for toy in (moved / "bin" / "toy", tmp_path / "link"):
        assert output_of(toy).startswith(f"python={moved}/bin/python toy=1.0 ")
    done = subprocess.run(
        ["bash", "-c", '. "$0"; command -v python', moved / "bin" / "activate"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{moved}/bin/python\n"
    assert "is not where it was made" not in done.stderr
    assert module.extend(moved, "--check").returncode == 0


def output_of(command: Path) -> str:
    return subprocess.run([command], capture_output=True, text=True, check=True).stdout


def test_from_one_version_to_another(module: ToyModule, venv: Path, tmp_path: Path) -> None:
    newer = make_module(tmp_path / "newer", sys.executable, "2.0")
    plain = files_of(venv)
    module.extend(venv)
    extended = files_of(venv)
    for arguments in ([venv], [venv, "--check"]):
        done = newer.extend(*arguments)
        assert done.returncode == 1
        assert done.stderr == (
            f"[venv] '{venv}' extends gear/1.0-cpu, not gear/2.0-cpu: to move it, run"
            f" extend-venv-activate '{venv}' --undo, then extend-venv-activate '{venv}', and"
            " reinstall in it what was compiled against the old module\n"
        )
        assert files_of(venv) == extended
    assert newer.extend(venv, "--undo").returncode == 0
    assert files_of(venv) == plain
    assert newer.extend(venv).returncode == 0
    assert newer.extend(venv, "--check").returncode == 0


def test_a_venv_of_another_python_is_refused(module: ToyModule, tmp_path: Path) -> None:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    others = [version for version in PYTHONS if version != ours and found_python(version)]
    if not others:
        pytest.skip(f"this machine has no other Python than {ours}")
    other = others[0]
    venv = make_venv(tmp_path / "venv", python_of(other))
    plain = files_of(venv)
    done = module.extend(venv)
    assert done.returncode == 1
    assert f"its Python is {other} (cpython-{other.replace('.', '')}-" in done.stderr
    assert f"the module's {ours} (" in done.stderr
    assert "make a venv with the module's: module load gear/1.0-cpu" in done.stderr
    assert files_of(venv) == plain


@pytest.mark.parametrize("script", ["activate", "activate.fish", "activate.csh"])
def test_an_unknown_activate_script_is_refused_and_nothing_touched(
    script: str, module: ToyModule, venv: Path
) -> None:
    (venv / "bin" / script).write_text("# of some other tool\n")
    plain = files_of(venv)
    done = module.extend(venv)
    assert done.returncode == 1
    assert f"[venv] {venv}/bin/{script} is of an unknown kind" in done.stderr
    assert files_of(venv) == plain


def test_a_block_without_its_end_is_refused(module: ToyModule, venv: Path) -> None:
    module.extend(venv)
    activate = venv / "bin/activate"
    lines = activate.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if line.startswith("# <<< gear module"))
    activate.write_text("".join(lines[:last] + lines[last + 1 :]))
    damaged = files_of(venv)
    for verb in ([], ["--check"], ["--undo"]):
        done = module.extend(venv, *verb)
        assert done.returncode == 1
        assert f"{activate} is damaged, a block of extend-venv-activate has no end" in done.stderr
        assert files_of(venv) == damaged


def test_what_is_no_venv_is_refused(module: ToyModule, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    broken = make_venv(tmp_path / "broken", sys.executable)
    for python in broken.glob("bin/python*"):
        python.unlink()
    closed = make_venv(tmp_path / "closed", sys.executable)
    (closed / "bin" / "python").unlink()
    (closed / "bin" / "python").symlink_to("/closed/python3")
    odd = make_venv(tmp_path / "odd", sys.executable)
    (odd / "bin" / "python").unlink()
    (odd / "bin" / "python").symlink_to("/bin/false")
    refused = {
        tmp_path / "missing": f"there is no folder '{tmp_path}/missing': make the venv first",
        folder: f"'{folder}' is not a venv, as pyvenv.cfg or bin/activate is missing",
        module.home: "is an installed module: extend a venv of your own",
        broken: f"{broken}/bin/python, leads to {broken}/bin/python, which is gone or in a folder",
        closed: "leads to /closed/python3, which is gone or in a folder that is closed to you",
        odd: f"the venv's python, {odd}/bin/python, does not run: make the venv anew",
    }
    for given, words in refused.items():
        done = module.extend(given)
        assert done.returncode == 1
        assert words in done.stderr.splitlines()[-1]
        assert done.stderr.splitlines()[-1].startswith("[venv] ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no venv given"),
        (["a", "b"], "one venv at a time: given 'a' and 'b'"),
        (["--force", "a"], "unknown option: given --force, allowed --check, --undo, --help"),
    ],
)
def test_wrong_usage(module: ToyModule, arguments: list[str], words: str) -> None:
    done = module.extend(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"[venv] {words}")


def test_help_says_what_is_written(module: ToyModule) -> None:
    done = module.extend("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: extend-venv-activate VENV [--check | --undo]\n")
    for said in ("launchers into bin", "zz_gear_module.pth", "run this again"):
        assert said in done.stdout
    assert "set -euo" not in done.stdout


def test_the_copy_in_the_repository_extends_nothing(venv: Path) -> None:
    done = subprocess.run(
        [REPOSITORY / "extend-venv-activate", venv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "is not an installed module" in done.stderr
    assert "load the module, then run its extend-venv-activate" in done.stderr
