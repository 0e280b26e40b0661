"""Builds that cannot succeed: one sentence, exit code 1, and what is installed is as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docs.documents import documented
from docs.ran import ran

from distribution.conftest import copy_prefix
from distribution.project import NAME, REPOSITORY
from distribution.recipe import UPDATE_STEPS, Recipe, done_steps, picture, small_site, toy_recipe

pytestmark = pytest.mark.subject("recipes")

# pip as on a machine without a network: no configuration, and a port that nobody listens on.
NO_NETWORK = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_RETRIES": "1",
}

OTHER_BASE = {"cxx": "/usr/bin/g++"}  # the same compiler, and yet another site


def assert_fails(recipe: Recipe, sentence: str, *options: str) -> str:
    """The build says `sentence` and what to try, and changes nothing that is installed."""
    before = picture(recipe.prefix)
    done = recipe.run(*options)
    assert done.code == 1, f"exit code {done.code}\n{done.output}\n{done.errors}"
    assert sentence in done.sentence(), done.errors
    assert "build:   try:  " in done.errors, done.errors
    assert "Traceback" not in done.errors
    assert "recipes/" not in done.errors or ": line " not in done.errors, done.errors  # bash's own
    assert picture(recipe.prefix) == before
    return done.errors


def fake_cuda(home: Path) -> Path:
    """A CUDA toolkit as far as preflight looks."""
    (home / "bin").mkdir(parents=True)
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime.h").touch()
    nvcc = home / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    nvcc.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"cxx": "no-such-g++"}, "[preflight] there is no C++ compiler no-such-g++"),
        ({"cc": "/usr/bin/no-such-gcc"}, "[preflight] there is no C compiler /usr/bin/no-such-gcc"),
        ({"cxx": "false"}, "[preflight] the compiler false (none) does not know C++20"),
        ({"mpicc": "no-mpicc"}, "[preflight] there is no MPI compiler no-mpicc"),
        ({"mpicc": "gcc"}, "[preflight] gcc does not compile a program with mpi.h"),
        ({"python": "python9 true"}, "no suitable Python: python9: not on PATH, true: it"),
        ({"cuda_home": "/no/cuda"}, "[preflight] cuda_home = /no/cuda has no bin/nvcc"),
        ({"cuda_home": "CUDA", "nccl": "/no/nccl"}, "NCCL in /no/nccl has no include/nccl.h"),
        ({"cuda_home": "CUDA", "nccl": "NCCL"}, "has no lib/libnccl.so"),
        ({"cuda_home": "CUDA", "nccl": "module"}, "no module has set NCCL_HOME"),
        (
            {"wheelhouse": "/no/wheels", "env__A": "1"},
            "[preflight] wheelhouse = /no/wheels is no folder",
        ),
        ({"modules": "no/such-module"}, "[modules] "),
        (
            {"module_init": "/no/init"},
            "[modules] module_init = /no/init is no file",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_a_site_lacks_is_found_first(
    values: dict[str, str], sentence: str, prefix: Path, tmp_path: Path
) -> None:
    fake_cuda(tmp_path / "cuda")
    (tmp_path / "nccl" / "include").mkdir(parents=True)
    (tmp_path / "nccl" / "include" / "nccl.h").touch()
    places = {"CUDA": str(tmp_path / "cuda"), "NCCL": str(tmp_path / "nccl")}
    values = {key: places.get(value, value) for key, value in values.items()}
    assert_fails(toy_recipe(small_site(tmp_path / "site.conf", **values), prefix), sentence)


def test_torch_needs_no_small_room(tmp_path: Path) -> None:
    df = tmp_path / "programs" / "df"
    df.parent.mkdir()
    df.write_text('#!/bin/sh\necho Available\necho "disk 9999 0 $FREE_MIB 0% /"\n')
    df.chmod(0o755)
    path = f"{df.parent}:{os.environ['PATH']}"
    site = small_site(tmp_path / "site.conf", torch="2.13.0")
    poor = toy_recipe(site, tmp_path / "prefix", {"PATH": path, "FREE_MIB": "2199"})
    assert_fails(poor, "too little room in", "--only", "preflight")
    enough = toy_recipe(site, tmp_path / "prefix", {"PATH": path, "FREE_MIB": "2200"})
    enough.succeed("--only", "preflight")


@pytest.mark.slow
def test_without_a_network(prefix: Path, tmp_path: Path) -> None:
    index = {"pip_index": "http://127.0.0.1:9/simple"}
    site = small_site(tmp_path / "site.conf", **OTHER_BASE, **index)
    errors = assert_fails(toy_recipe(site, prefix, NO_NETWORK), "[venv] ")
    assert "the network does not answer" in errors
    assert "wheelhouse" in errors
    assert "02-venv.log, line " in errors
    assert f"  gear/{NAME}, installed before, is as it was" in errors


@pytest.mark.slow
def test_an_update_needs_no_network(prefix: Path, tmp_path: Path) -> None:
    site = small_site(tmp_path / "site.conf", env__A_CHANGE="1")
    recipe = toy_recipe(site, prefix, {**NO_NETWORK, "GEAR_BUILD_CACHE": str(tmp_path / "cache")})
    said = recipe.succeed()
    assert done_steps(said) == UPDATE_STEPS
    assert "gear: building it" in said


@pytest.mark.slow
def test_what_is_advised_without_a_network_can_be_done(wheelhouse: Path, tmp_path: Path) -> None:
    prefix, site = tmp_path / "prefix", tmp_path / "site.conf"
    errors = assert_fails(toy_recipe(small_site(site), prefix, NO_NETWORK), "[venv] ")
    assert "the network does not answer" in errors
    assert "or wheelhouse to a folder with the packages, then repeat with --resume" in errors
    proxy = {"proxy": "http://127.0.0.1:9", "pip_index": "http://127.0.0.1:9/simple"}
    recipe = toy_recipe(small_site(site, wheelhouse=str(wheelhouse), **proxy), prefix, NO_NETWORK)
    builds = (prefix / "gear" / ".builds").glob
    assert "[1/7] preflight: done before" in recipe.kill_at("[3/7] packages", "--resume")
    assert len(list(builds("base-*"))) == 1
    recipe.succeed("--resume")
    assert recipe.manifest()
    # Another torch is another base.
    small_site(site, torch_index="http://127.0.0.1:9/simple")
    recipe.succeed("--only", "preflight")
    assert len(list(builds("base-*"))) == 2


@pytest.fixture(scope="module")
def wheelhouse(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a small site installs, by the command of INSTALL.md."""
    home = tmp_path_factory.mktemp("home")
    command = documented(r"python3 recipes/wheelhouse\.py .*")
    instead = command.replace("/opt/gear", str(installed)).replace("~", str(home))
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    gather = ["bash", "-c", instead]
    done = subprocess.run(gather, cwd=REPOSITORY, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran(command, instead)
    (folder,) = home.iterdir()
    return folder


@pytest.mark.slow
def test_a_wheelhouse_that_lacks_something(wheelhouse: Path, prefix: Path, tmp_path: Path) -> None:
    poorer = tmp_path / "wheels"
    shutil.copytree(wheelhouse, poorer, ignore=shutil.ignore_patterns("pybind11*"))
    site = small_site(tmp_path / "site.conf", wheelhouse=str(poorer), **OTHER_BASE)
    errors = assert_fails(toy_recipe(site, prefix, NO_NETWORK), "a package is not available")
    assert "pybind11" in errors
    assert "wheelhouse" in errors


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 700 MiB of its own, mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700m,nr_inodes=0", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path, leave_mib: int) -> None:
    with (disk / "filler").open("wb") as filler:
        free = os.statvfs(disk)
        os.posix_fallocate(filler.fileno(), 0, free.f_bavail * free.f_frsize - (leave_mib << 20))


@pytest.mark.slow
def test_a_full_disk(installed: Path, disk: Path, tmp_path: Path) -> None:
    prefix = disk / "prefix"
    copy_prefix(installed, prefix, link=False)
    site = small_site(tmp_path / "changed.conf", env__A_CHANGE="1", **OTHER_BASE)
    changed = toy_recipe(site, prefix)
    fill(disk, 50)
    assert_fails(changed, f"[preflight] too little room in {prefix}: ")
    # Room when the build begins, and none later.
    (disk / "filler").unlink()
    changed.succeed("--only", "preflight")
    fill(disk, 20)
    assert "no space is left on the disk" in assert_fails(changed, "[venv] ", "--resume")
    # The last byte is gone before it begins.
    fill(disk, 0)
    assert_fails(changed, "")
    (disk / "filler").unlink()
    changed.succeed("--resume")
    assert b"A_CHANGE" in changed.manifest()


def test_a_prefix_that_cannot_be_written(installed: Path, disk: Path, tmp_path: Path) -> None:
    prefix = disk / "prefix"
    copy_prefix(installed, prefix, link=False)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    changed = toy_recipe(small_site(tmp_path / "changed.conf", env__A_CHANGE="1"), prefix)
    sentence = f"[prefix] {prefix} cannot be written: Read-only file system"
    assert_fails(changed, sentence)
    assert_fails(changed, sentence, "--uninstall")
    assert_fails(
        toy_recipe(changed.site, disk / "other"), "cannot be written: Read-only file system"
    )


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"TMPDIR": "/nope"}, "[usage] TMPDIR: given '/nope', allowed a folder"),
        ({"TMPDIR": "DISK"}, "[preflight] too little room in DISK for temporary files: 0 MiB"),
        ({"HOME": "", "GEAR_BUILD_CACHE": ""}, "[usage] HOME is not set"),
        ({"GEAR_BUILD_CACHE": "/proc/nope"}, "[build] GEAR_BUILD_CACHE = /proc/nope cannot be"),
    ],
    ids=["no-tmpdir", "full-tmpdir", "no-home", "no-cache"],
)
def test_places_that_cannot_be_written_are_named(
    env: dict[str, str], sentence: str, disk: Path, tmp_path: Path
) -> None:
    fill(disk, 0)
    env = {"XDG_CACHE_HOME": ""} | {
        key: text.replace("DISK", str(disk)) for key, text in env.items()
    }
    done = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix", env).run()
    assert done.sentence().startswith(sentence.replace("DISK", str(disk))), done.errors
    assert ": line " not in done.errors  # bash's own
    assert "mktemp" not in done.errors


def test_a_prefix_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "prefix").touch()
    recipe = toy_recipe(small_site(tmp_path / "site.conf"), tmp_path / "prefix")
    assert "cannot be written: Not a directory" in recipe.run().sentence()


def spoil_folder(prefix: Path) -> str:
    shutil.rmtree(prefix / "modulefiles")
    (prefix / "modulefiles").touch()
    return "modulefiles/gear cannot be written: Not a directory"


def spoil_lua(prefix: Path) -> str:
    (prefix / "modulefiles" / "gear" / f".{NAME}.lua.tmp").mkdir()
    return f"modulefiles/gear/{NAME}.lua cannot be written: "


def spoil_tcl(prefix: Path) -> str:
    tcl = prefix / "modulefiles" / "gear" / NAME
    tcl.unlink()
    tcl.mkdir()
    return f"modulefiles/gear/{NAME} cannot be written: it is a folder"


def spoil_default(prefix: Path) -> str:
    (prefix / "modulefiles" / "gear" / ".version.tmp").mkdir()
    return "modulefiles/gear/.version cannot be written: Is a directory"


@pytest.mark.parametrize("spoil", [spoil_folder, spoil_lua, spoil_tcl, spoil_default])
def test_module_files_that_cannot_be_written(
    spoil: Callable[[Path], str], prefix: Path, tmp_path: Path
) -> None:
    # A build that is finished, in the place of another one.
    link = toy_recipe(small_site(tmp_path / "site.conf"), prefix).home()
    link.unlink()
    link.symlink_to(f".builds/{NAME}-000000000000")
    (link.parent / ".builds" / f"{NAME}-000000000000").mkdir()
    said = spoil(prefix)
    assert_fails(toy_recipe(tmp_path / "site.conf", prefix), f"[switch] {prefix}/{said}")
    assert not (link.parent / ".builds" / f".{link.name}.previous.tmp").exists()


def test_one_build_at_a_time(prefix: Path, tmp_path: Path) -> None:
    lock = prefix / "gear" / ".builds" / ".lock"
    changed = toy_recipe(small_site(tmp_path / "site.conf", env__A_CHANGE="1"), prefix)
    with subprocess.Popen(["flock", str(lock), "cat"], stdin=subprocess.PIPE) as other:
        assert other.stdin is not None
        while subprocess.run(["flock", "-n", str(lock), "true"]).returncode == 0:
            pass
        assert_fails(changed, f"[prefix] another build is running in {prefix}")
        other.stdin.close()


@pytest.mark.parametrize(
    ("flock", "sentence"),
    [
        (
            "echo 'flock: 9: No locks available' >&2; exit 71",
            "cannot be locked: No locks available",
        ),
        ("exit 1", "[prefix] another build is running in "),
        (None, "[prefix] there is no command 'flock'"),
    ],
    ids=["no-locks", "held", "no-flock"],
)
def test_a_prefix_without_locks_is_refused(
    flock: str | None, sentence: str, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "flock" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    if flock:
        (programs / "flock").write_text(f"#!/bin/sh\n{flock}\n")
        (programs / "flock").chmod(0o755)
    site = small_site(tmp_path / "site.conf")
    assert_fails(toy_recipe(site, tmp_path / "prefix", {"PATH": str(programs)}), sentence)
