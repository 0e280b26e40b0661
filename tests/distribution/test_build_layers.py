"""An installation is GEAR on a base: what goes into which, and what an update leaves alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from distribution.project import NAME, PYPROJECT, REPOSITORY, VERSION, toy_source
from distribution.recipe import (
    SMALL_STEPS,
    UPDATE_STEPS,
    Installation,
    Recipe,
    done_steps,
    running,
    small_site,
    toy_recipe,
)
from distribution.recipe_part import run_part
from distribution.toy_module import command, make_venv, site_packages

pytestmark = pytest.mark.subject("recipes")

HASHES = """
base_steps=(venv torch packages mpi4py horovod deepspeed)
PYTHON=$(command -v python3)
BASE_NAME=base-$(base_hash)
echo "$BASE_NAME $(build_hash)"
"""
SITE = {"torch": "2.13.0", "name": "a site", "mpirun_options": "", "jobs": "1"}


@pytest.fixture(scope="module")
def of_site(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return hashes(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def of_source(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return hashes(tmp_path_factory.mktemp("source"), toy_source(VERSION))


def hashes(folder: Path, source: Path = REPOSITORY, **site: str) -> list[str]:
    """Of the base, and of the build on it."""
    done = run_part("inputs.sh", HASHES, folder, site=SITE | site, source=source)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_what_a_tool_says_behind_its_version_does_not_matter(tmp_path: Path) -> None:
    tool = tmp_path / "cmake"
    tool.write_text("#!/bin/sh\necho 'cmake version 3.25.1'\nsleep 0.2\nseq 20000\n")
    tool.chmod(0o755)
    ask = f'PATH={tmp_path}:$PATH\ntool_version compiler\ncmake_will_do && echo ", which will do"'
    done = run_part("steps/venv.sh", ask, tmp_path, site={"cxx": str(tool)})
    assert done.stdout == "cmake version 3.25.1, which will do\n", done.stderr


@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({"torch": "2.12.0"}, ["base", "build"]),
        ({"cxx": "c++"}, ["base", "build"]),
        ({"horovod_gloo": "on"}, ["base", "build"]),
        ({"name": "another name"}, []),
        ({"mpirun_options": "--oversubscribe"}, []),
        ({"env.NCCL_DEBUG": "INFO"}, ["build"]),
        ({"c10d": "off"}, ["build"]),
        ({"jobs": "2"}, []),
        ({"pip_index": "https://host/simple"}, []),
        ({"module_init": "/init/bash"}, []),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_values_of_the_site_go_into(
    values: dict[str, str], changed: list[str], of_site: list[str], tmp_path: Path
) -> None:
    layers = zip(("base", "build"), of_site, hashes(tmp_path, **values), strict=True)
    assert [layer for layer, was, now in layers if was != now] == changed


@pytest.mark.parametrize(
    ("file", "was", "now", "changed"),
    [
        ("requirements/constraints.txt", "\nnumpy==", "\nnumpy==1", ["base", "build"]),
        ("requirements/constraints.txt", "\nruff==", "\nruff==1", ["build"]),
        ("requirements/site.txt", "# ", "# A word more: ", ["build"]),
        ("pyproject.toml", '"click>=8.1"', '"click>=8.2"', ["base", "build"]),
        ("pyproject.toml", '"ruff"', '"ruff>=1"', ["build"]),
        ("recipes/sources/horovod.txt", "horovod==", "horovod==1", ["base", "build"]),
        ("recipes/steps/core.sh", "core_step", "core_stop", ["build"]),
        ("gear/__init__.py", "pass", "return", ["build"]),
    ],
)
def test_sources_go_into(
    file: str, was: str, now: str, changed: list[str], of_source: list[str], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(toy_source(VERSION), source)
    text = (source / file).read_text()
    assert was in text
    (source / file).write_text(text.replace(was, now))
    layers = zip(("base", "build"), of_source, hashes(tmp_path, source), strict=True)
    assert [layer for layer, was, now in layers if was != now] == changed


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is of Python 3.11")
@pytest.mark.parametrize("extra", ["cli", "train", "dev"])
def test_requirements_are_those_of_the_project(extra: str, tmp_path: Path) -> None:
    import tomllib

    project = tomllib.loads(PYPROJECT)["project"]
    extras = project["optional-dependencies"]

    def expanded(requirements: list[str]) -> list[str]:
        found = []
        for requirement in requirements:
            name, _, others = requirement.partition("[")
            if name == project["name"]:
                found += expanded([each for key in others[:-1].split(",") for each in extras[key]])
            else:
                found.append(requirement)
        return found

    done = run_part("inputs.sh", f"requirements_of dependencies; requirements_of {extra}", tmp_path)
    assert done.stdout.splitlines() == expanded([*project["dependencies"], *extras[extra]])


@pytest.mark.slow
def test_an_update_leaves_base_and_previous_build_alone(prefix: Path, tmp_path: Path) -> None:
    builds = prefix / "gear" / ".builds"
    (base,) = builds.glob("base-*")
    of_base = picture_of(base)
    first = (prefix / "gear" / NAME).resolve()
    made = [first]
    with running(first) as process:
        for change in ("1", "2"):
            recipe = toy_recipe(small_site(tmp_path / "site.conf", env__A_CHANGE=change), prefix)
            said = recipe.succeed()
            assert done_steps(said) == UPDATE_STEPS
            assert f" on {base.name}\n" in said
            made.append(recipe.home().resolve())
            # What runs in a build, this one or one before, has its own GEAR and the same packages.
            for build in made:
                shows = "import gear, click; print(gear.__file__, click.__file__)"
                says = subprocess.check_output([build / "bin/python", "-I", "-c", shows], text=True)
                files = says.split()
                assert Path(files[0]).is_relative_to(build)
                assert Path(files[1]).is_relative_to(base)
    # The one before the last is kept in any case, an older one while something runs on it.
    assert f"{first.name} stays until the next update: processes use it: " in said
    assert f"{process.pid} (sleep)" in said
    assert picture_of(base) == of_base
    assert set(builds.glob("[0-9]*")) == set(made)
    assert done_steps(toy_recipe(small_site(tmp_path / "site.conf"), prefix).succeed()) == []
    assert set(builds.glob("[0-9]*")) == {first, made[-1]}


def test_a_title_is_corrected_without_a_build(prefix: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(small_site(tmp_path / "site.conf", name="A better title"), prefix)
    home = recipe.home().resolve()
    assert done_steps(recipe.succeed()) == ["smoke", "manifest"]
    assert b'"A better title"' in recipe.manifest()
    assert recipe.home().resolve() == home
    assert "nothing to do" in recipe.succeed()


def picture_of(folder: Path) -> dict[Path, int]:
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {path: path.lstat().st_mtime_ns for path in paths if not path.is_dir()}


@pytest.mark.slow
def test_what_is_compiled_is_compiled_once(prefix: Path, tmp_path: Path) -> None:
    """A change of Python alone makes another wheel, and compiles nothing for it."""
    source = tmp_path / "source"
    shutil.copytree(toy_source(VERSION), source)
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(gear LANGUAGES C)\n"
        "add_library(toy SHARED csrc/toy.c)\ninstall(TARGETS toy DESTINATION gear)\n"
    )
    (source / "csrc" / "toy.c").write_text("int toy(void) { return 1; }\n")
    cache = {"GEAR_BUILD_CACHE": str(tmp_path / "cache")}
    recipe = Recipe(small_site(tmp_path / "site.conf"), prefix, cache, source)
    compiled = []
    for file, line in (
        ("gear/__init__.py", "one = 1\n"),
        ("gear/__init__.py", "two = 2\n"),
        ("csrc/toy.c", "int more(void) { return 2; }\n"),
    ):
        with (source / file).open("a") as text:
            text.write(line)
        assert done_steps(recipe.succeed()) == UPDATE_STEPS
        home = recipe.home()
        (log,) = home.glob("share/gear/logs/*-core.log")
        compiled.append("Building C object" in log.read_text())
        (package,) = home.glob("lib/python3.*/site-packages/gear")
        assert (package / "__init__.py").read_text() == (source / "gear/__init__.py").read_text()
        library = (package / "libtoy.so").read_bytes()
        assert (b"more" in library) is (file == "csrc/toy.c")
    assert compiled == [True, False, True]


@pytest.mark.slow
def test_modules_in_the_clone_are_not_the_build_s(tmp_path: Path) -> None:
    """Whoever installs stands in the clone, and Python looks there first."""
    source = shutil.copytree(toy_source(VERSION), tmp_path / "clone")
    for name in ("pip", "venv", "torch", "nvidia"):
        (source / f"{name}.py").write_text("raise SystemExit('of the clone')\n")
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    done = subprocess.run(
        replace(recipe, source=source).command(),
        cwd=source,
        env=os.environ | dict(recipe.env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_base_goes_with_the_last_build_on_it(prefix: Path, tmp_path: Path) -> None:
    builds = prefix / "gear" / ".builds"
    (first,) = builds.glob("base-*")
    other = toy_recipe(small_site(tmp_path / "other.conf", cxx="/usr/bin/g++"), prefix)
    assert done_steps(other.succeed()) == SMALL_STEPS
    (second,) = set(builds.glob("base-*")) - {first}  # the first is that of the previous build
    update = toy_recipe(small_site(other.site, cxx="/usr/bin/g++", env__A="1"), prefix)
    assert done_steps(update.succeed()) == UPDATE_STEPS
    assert list(builds.glob("base-*")) == [second]
    assert f"rm -rf {second}" in update.succeed("--uninstall", "--dry-run")
    update.succeed("--uninstall")
    assert not prefix.joinpath("gear").exists()


@pytest.mark.slow
def test_an_unfinished_base_goes_on_under_another_build(tmp_path: Path) -> None:
    """What was corrected in the site file was no matter of the base."""
    site = tmp_path / "site.conf"
    recipe = toy_recipe(small_site(site, env__A="wrong"), tmp_path / "prefix")
    recipe.kill_at("packages")
    said = toy_recipe(small_site(site, env__A="right"), recipe.prefix).kill_at("core", "--resume")
    assert "] venv: done before" in said
    assert done_steps(said) == ["preflight", "packages"]
    assert len(list(recipe.prefix.glob("gear/.builds/base-*"))) == 1


def test_commands_of_the_base_run_in_the_environment_on_it(tmp_path: Path) -> None:
    base = make_venv(tmp_path / "base", sys.executable)
    mine = make_venv(tmp_path / "mine", sys.executable)
    (site_packages(base) / "below.py").touch()
    (site_packages(base) / "more.pth").write_text("import sys; sys.more = True\n")
    says = "import sys, below\nprint(sys.prefix, sys.more, sys.argv[1:])\n"
    command(base / "bin/short", f"#!{base}/bin/python\n{says}")
    command(
        base / "bin/long", f"#!/bin/sh\n'''exec' '{base}/bin/python' \"$0\" \"$@\"\n' '''\n{says}"
    )
    command(base / "bin/plain", '#!/bin/sh\necho "$0"\n')
    command(base / "bin/of-perl", "#!/opt/python-torch/bin/perl\n")
    command(base / "bin/mpirun", "#!/bin/sh\n")  # of no package
    (base / "bin/data").write_text("#!python\n")
    about = site_packages(base) / "below-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: below\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[console_scripts]\nlong = below:main\n")
    recorded = ("short", "plain", "of-perl", "data", "gone")
    (about / "RECORD").write_text("".join(f"../../../bin/{name},,\n" for name in recorded))
    (site_packages(base) / "left-2.dist-info").mkdir()  # by an uninstallation
    stand_on = REPOSITORY / "recipes" / "stand_on.py"
    subprocess.run([mine / "bin/python", stand_on, base], check=True)
    for name in ("short", "long"):
        said = subprocess.run([mine / "bin" / name, "a b"], capture_output=True, text=True)
        assert said.stdout == f"{mine} True ['a b']\n", said.stderr
        # As extend-venv-activate runs it, by the Python of a venv on top.
        said = subprocess.run([sys.executable, mine / "bin" / name], capture_output=True, text=True)
        assert "No module named 'below'" in said.stderr
    for name in ("plain", "of-perl"):
        assert (mine / "bin" / name).readlink() == base / "bin" / name
    for name in ("data", "gone", "mpirun"):
        assert not (mine / "bin" / name).exists()


def test_a_base_of_another_python_is_refused(tmp_path: Path) -> None:
    mine = make_venv(tmp_path / "mine", sys.executable)
    (tmp_path / "base/lib/python2.7/site-packages").mkdir(parents=True)
    stand_on = REPOSITORY / "recipes" / "stand_on.py"
    command = [mine / "bin/python", stand_on, tmp_path / "base"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"[layers] {tmp_path}/base/lib/python3.")


def test_a_venv_of_a_user_sees_both_layers(installed: Path, tmp_path: Path) -> None:
    home = installed / "gear" / NAME
    venv = make_venv(tmp_path / "venv", str(home / "bin/python"))
    subprocess.run([home / "bin/extend-venv-activate", venv], check=True, capture_output=True)
    shows = "import gear, click; print(gear.__file__, click.__file__)"
    said = subprocess.check_output([venv / "bin/python", "-I", "-c", shows], text=True)
    packages = site_packages(venv).relative_to(venv)
    for file, layer in zip(said.split(), (home, home / "base"), strict=True):
        assert Path(file).is_relative_to(layer.resolve() / packages)
    # A command of the base, by the venv's Python.
    (site_packages(venv) / "pybind11.py").write_text("raise SystemExit('of the venv')\n")
    done = subprocess.run([venv / "bin/pybind11-config"], capture_output=True, text=True)
    assert done.stderr == "of the venv\n"


def test_gear_itself_needs_no_torch(installation: Installation, tmp_path: Path) -> None:
    """Its wheel is the one of the whole site, on another base."""
    site = small_site(tmp_path / "site.conf", python=os.path.realpath(installation.python))
    kept = installation.recipe().env
    said = Recipe(site, tmp_path / "prefix", kept).succeed()
    assert "gear: the wheel of an earlier build" in said
    python = tmp_path / "prefix" / "gear" / NAME / "bin" / "python"
    finds = "import gear, importlib.util; print(importlib.util.find_spec('torch'))"
    assert subprocess.check_output([python, "-I", "-c", finds], text=True) == "None\n"
