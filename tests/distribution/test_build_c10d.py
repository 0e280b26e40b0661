"""The step c10d: gear_mpi and gear_emu in the installed package.

A stand-in of tools/c10d.sh takes the place of three minutes of compiling; the installation that
other tests share has the real ones.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from distribution.project import REPOSITORY
from distribution.recipe import Recipe, small_site
from distribution.recipe_part import run_part

LIBRARY = "torch-2.13.0_open-mpi-4.1.4/_c10d.so"
EMULATOR = "torch-2.13.0_none/_emu.so"
BUILD = """#!/bin/sh
echo "$MPICXX" "$@" >>"{folder}/calls"
library={library}
for word in "$@"; do
  case $word in --to=*) to=${{word#*=}} ;; --emulator) library={emulator} ;; esac
done
mkdir -p "$to/${{library%/*}}"
for file in "${{library#*/}}" stamp; do echo "$PWD" >"$to/${{library%/*}}/$file"; done
"""
ON = {"torch": "2.13.0", "mpi": "on", "mpicc": "true", "mpicxx": "true", "c10d": "on"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The sources, with tools/c10d.sh that takes no time."""
    made = tmp_path / "source"
    shutil.copytree(REPOSITORY / "recipes", made / "recipes")
    for folder in ("process_group/src", "csrc/base", "csrc/mpi", "tools"):
        (made / folder).mkdir(parents=True)
        (made / folder / "file").touch()
    shutil.copy(REPOSITORY / "pyproject.toml", made)
    (made / "process_group" / "CMakeLists.txt").touch()
    put(made, BUILD.format(folder=tmp_path, library=LIBRARY, emulator=EMULATOR))
    python = tmp_path / "build" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"""#!/bin/sh
case $* in *platlib*) echo "{tmp_path}/gear_mpi" ;; *) echo 2.13.0 ;; esac
"""
    )
    python.chmod(0o755)
    (tmp_path / "gear_mpi").mkdir()
    return made


def put(source: Path, script: str) -> None:
    program = source / "tools" / "c10d.sh"
    program.write_text(script)
    program.chmod(0o755)


def step(source: Path, c10d: str = "on", **site: str) -> subprocess.CompletedProcess[str]:
    folder = source.parent
    script = "STEP=c10d; c10d_step; rm -rf $LAYER/work"
    return run_part("steps/c10d.sh", script, folder, site=ON | {"c10d": c10d} | site, source=source)


def test_the_libraries_are_in_the_package_and_kept_for_later_builds(source: Path) -> None:
    folder = source.parent
    for times in (0, 2):
        done = step(source)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("the library of an earlier build") == times
        for library in (LIBRARY, EMULATOR):
            assert (folder / "gear_mpi" / "c10d" / library).is_file()
            assert (folder / "gear_mpi" / "c10d" / library).with_name("stamp").is_file()
    work = folder / "build" / "work"
    words = f"true --python={folder}/build/bin/python --to={work}"
    assert (folder / "calls").read_text().splitlines() == [
        f"{words}/gear_emu/lib --emulator",
        f"{words}/gear_mpi/lib",
    ]
    (source / "process_group" / "src" / "file").write_text("changed")
    assert step(source).returncode == 0
    assert len((folder / "calls").read_text().splitlines()) == 4
    assert not (source / "build").exists()  # nothing is written into the source


def test_the_emulator_needs_no_mpi(source: Path) -> None:
    done = step(source, "auto", mpi="off")
    assert done.returncode == 0, done.stderr
    installed = source.parent / "gear_mpi" / "c10d"
    assert [path.parent.name for path in installed.glob("*/stamp")] == [Path(EMULATOR).parent.name]


@pytest.mark.parametrize("where", ["clone", "elsewhere"])
def test_the_package_is_that_of_the_build_wherever_one_stands(tmp_path: Path, where: str) -> None:
    """In a clone, `import gear` finds the clone's, compiled or not."""
    build = tmp_path / "build"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", build], check=True)
    script = f"cd {REPOSITORY if where == 'clone' else '/'}; c10d_package"
    done = run_part("steps/c10d.sh", script, tmp_path, site=ON)
    assert done.returncode == 0, done.stderr
    (packages,) = build.glob("lib/python3.*/site-packages")
    assert Path(done.stdout.strip()) == packages / "gear_mpi"


def test_what_does_not_compile_is_left_out_with_a_warning(source: Path) -> None:
    put(source, "#!/bin/sh\necho 'error: no mpi.h' >&2\nexit 1\n")
    done = step(source, "auto")
    assert done.returncode == 0, done.stderr
    for name in ("gear_emu", "gear_mpi"):
        assert f"warning: {name} could not be compiled, and is left out" in done.stderr
    assert not any((source.parent / "gear_mpi" / "c10d").iterdir())


def test_what_does_not_compile_fails_where_the_site_wants_it(source: Path) -> None:
    put(source, "#!/bin/sh\nexit 1\n")
    done = step(source)
    assert done.returncode == 1
    assert "[c10d] gear_emu could not be compiled" in done.stderr
    assert "c10d = off in the site file leaves it out" in done.stderr


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"c10d": "on"}, "c10d = on needs torch: set torch, or c10d = off"),
        ({"c10d": "on", "torch": "2.13.0", "mpi": "off"}, "c10d = on needs mpi: set mpi, or"),
        ({"c10d": "yes"}, "given 'yes', allowed auto or on or off"),
    ],
)
def test_sites_that_contradict_themselves(
    tmp_path: Path, values: dict[str, str], sentence: str
) -> None:
    site = small_site(tmp_path / "site.conf", **values)
    assert sentence in Recipe(site, tmp_path / "prefix").run("--dry-run").sentence()


def test_without_torch_there_is_no_such_step(tmp_path: Path) -> None:
    site = small_site(tmp_path / "site.conf", c10d="auto")
    assert "] c10d" not in Recipe(site, tmp_path / "prefix").succeed("--dry-run")
