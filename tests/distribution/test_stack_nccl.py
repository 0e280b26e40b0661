"""One NCCL for all of an installation: the wheel's, the site's, or one built from source.

The libraries are small ones, compiled, linked and loaded (small_nccl.py).
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
import tarfile
from pathlib import Path

import pytest

from distribution import small_nccl
from distribution.recipe_part import fake_python, run_part
from gear.cli.check_manifest import find_differences

SITE = {"cuda_home": "/opt/cuda", "cuda_architectures": "80;90"}


def place(folder: Path, nccl: str, *, torch_needs: str = "2.20.0", **site: str):
    """Runs the step's function; the venv's python tells of a torch with its own NCCL."""
    package = folder / "build/lib/python3.11/site-packages/nvidia/nccl"
    if not package.exists():
        small_nccl.build(package, torch_needs)
        about = package.parents[1] / f"nvidia_nccl_cu13-{torch_needs}.dist-info"
        about.mkdir()
        size = (package / "lib/libnccl.so.2").stat().st_size
        (about / "RECORD").write_text(f"nvidia/nccl/lib/libnccl.so.2,sha256=x,{size}\n")
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: nvidia-nccl-cu13\nVersion: {torch_needs}\n"
        )
    fake_python(
        folder / "build",
        f'case "$2" in *nvidia.nccl*) echo {package} ;; *torch*) echo {torch_needs} ;; esac',
    )
    script = "nccl_in_place; nccl_version"
    values = {**SITE, "nccl": nccl, "nccl_functions": "", **site}
    return run_part("nccl.sh", script, folder, site=values, kind="gpu")


def seen(folder: Path) -> str:
    """What a program that is linked against it says; torch loads the same from its own place."""
    view = folder / "build/nccl"
    torch = folder / "build/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
    assert torch.resolve() == (view / "lib/libnccl.so").resolve()
    library = ctypes.CDLL(str(torch))
    library.builtWith.restype = ctypes.c_char_p
    said = small_nccl.linked_against(view, folder)
    assert said.endswith(library.builtWith().decode())
    return said


def test_the_wheel_is_torchs_own(tmp_path):
    done = place(tmp_path, "wheel", torch_needs="2.28.9")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2.28.9"
    assert seen(tmp_path).startswith("2.28.9 ")
    assert (tmp_path / "build/share/gear/record/tools/nccl").read_text() == "2.28.9\n"


@pytest.mark.parametrize("library", ["lib", "lib64", f"lib/{platform.machine()}-linux-gnu"])
def test_a_path_takes_the_place_of_torchs(tmp_path, library):
    home = small_nccl.build(tmp_path / "site", "2.29.1", library=library)
    done = place(tmp_path, str(home))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2.29.1"
    assert seen(tmp_path).startswith("2.29.1 ")
    assert (tmp_path / "build/nccl/include/nccl.h").exists()


def test_what_took_the_place_is_no_difference(tmp_path):
    """`gear check --manifest` ends each build: it compares files with what their packages say."""
    home = small_nccl.build(tmp_path / "site", "2.29.1")
    with (home / "lib/libnccl.so.2.29.1").open("ab") as library:
        library.write(bytes(1000))  # of another size than torch's
    done = place(tmp_path, str(home))
    assert done.returncode == 0, done.stderr
    (tmp_path / "build/base").symlink_to(tmp_path / "build")
    packages = [{"name": "nvidia-nccl-cu13", "version": "2.20.0"}]
    manifest = {"site": {}, "packages": packages, "patches": []}
    assert list(find_differences(manifest, tmp_path / "build")) == []


def test_a_module_gives_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_HOME", str(small_nccl.build(tmp_path / "module", "2.30.0")))
    done = place(tmp_path, "module")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2.30.0"


def test_one_older_than_torch_needs_is_refused(tmp_path):
    home = small_nccl.build(tmp_path / "site", "2.9.8")
    done = place(tmp_path, str(home), torch_needs="2.28.9")
    assert done.returncode == 1
    assert "NCCL 2.9.8" in done.stderr
    assert "older than NCCL 2.28.9" in done.stderr
    assert "nccl = wheel" in done.stderr


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("profile", "flags"), [("release", "DEBUG=0 TRACE=0"), ("debug", "DEBUG=1 TRACE=1")]
)
def test_a_source_is_built_by_its_profile(tmp_path, profile, flags, packed):
    given = source = small_nccl.write_source(tmp_path / "nccl-source", "2.31.2")
    if packed:
        given = tmp_path / "nccl.tar.gz"
        with tarfile.open(given, "w:gz") as archive:
            archive.add(source, "nccl-2.31.2")
    functions = "AllReduce Sum f32 RING"
    options = {"nccl_source": str(given), "nccl_profile": profile, "nccl_functions": functions}
    done = place(tmp_path, "source", **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2.31.2"
    gencode = "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90"
    assert seen(tmp_path) == f"2.31.2 {flags} CUDA_HOME=/opt/cuda {gencode} [{functions}]"
    library = (tmp_path / "build/nccl/lib/libnccl.so").resolve()
    sections = subprocess.check_output(["readelf", "-S", library], text=True)
    assert (".debug_info" in sections) == (profile == "debug")
    recorded = (tmp_path / "build/share/gear/options/nccl").read_text()
    assert f"profile={profile}" in recorded
    assert f"ONLY_FUNCS={functions}" in recorded


def test_a_source_that_does_not_compile_is_told(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/Makefile").write_text("src.build:\n\t@echo 'nvcc fatal: no'; exit 1\n")
    done = place(tmp_path, "source", nccl_source=str(tmp_path / "source"))
    assert done.returncode == 1
    assert "NCCL could not be compiled" in done.stderr


def test_what_is_no_archive_is_told(tmp_path):
    (tmp_path / "nccl.tar.gz").write_text("not an archive")
    done = place(tmp_path, "source", nccl_source=str(tmp_path / "nccl.tar.gz"))
    assert done.returncode == 1
    assert "could not be unpacked" in done.stderr
