"""What recipes/wheelhouse.py gathers installs without a network, also what there is no wheel of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distribution.recipe_part import REPOSITORY
from distribution.test_build_faults import NO_NETWORK

SDIST = "antlr4-python3-runtime"  # what Hydra reads its files with
TOOLS = ["setuptools", "wheel", "packaging"]
SITE = {"pip_index": "", "torch_index": "", "proxy": ""}


def pip_of_venv(
    folder: Path, *arguments: str | Path, **options
) -> subprocess.CompletedProcess[str]:
    """Makes an environment in `folder`, and runs its pip."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "python", "-I", "-m", "pip", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def write_manifest(home: Path, *built: str, **site: str) -> None:
    (home / "base/share/gear/record/pip").mkdir(parents=True, exist_ok=True)
    (home / "share/gear").mkdir(parents=True, exist_ok=True)
    packages = [{"name": name} for name in built]
    manifest = {"site": SITE | site, "packages": packages}
    (home / "share/gear/manifest.json").write_text(json.dumps(manifest))


def gather(home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "recipes" / "wheelhouse.py", home, folder]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_package_that_is_a_source_only(tmp_path):
    home, folder = tmp_path / "home", tmp_path / "wheelhouse"
    write_manifest(home)
    report = home / "base/share/gear/record/pip/001.json"
    pins = REPOSITORY / "requirements" / "site.txt"
    names = [*TOOLS, f"{SDIST}==4.9.3"]
    done = pip_of_venv(home, "install", "--constraint", pins, "--report", report, *names)
    assert done.returncode == 0, done.stderr
    done = gather(home, folder)
    assert done.returncode == 0, done.stderr
    kinds = {path.name.split("-")[0]: path.name for path in folder.iterdir()}
    assert set(kinds) == {"antlr4", *TOOLS}
    assert {name for name, file in kinds.items() if file.endswith(".whl")} == set(TOOLS)

    options = ["--no-index", "--no-cache-dir", "--find-links", folder]
    other = tmp_path / "other"
    done = pip_of_venv(other, "install", *options, SDIST, env=os.environ | NO_NETWORK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Successfully installed {SDIST}-4.9.3" in done.stdout


@pytest.fixture
def called(tmp_path):
    """How pip is called for a source `toy`, and mpi4py, of a site: the lines of a stand-in."""

    def call(**site: str) -> list[str]:
        home = tmp_path / "home"
        (home / "bin").mkdir(parents=True)
        write_manifest(home, "mpi4py", **site)
        item = {
            "download_info": {
                "url": "https://example.com/toy-1.tar.gz",
                "archive_info": {"hashes": {"sha256": "0" * 64}},
            },
            "metadata": {"name": "toy", "version": "1"},
        }
        report = home / "base/share/gear/record/pip/001.json"
        report.write_text(json.dumps({"install": [item]}))
        python = home / "bin" / "python"
        python.write_text(
            '#!/bin/sh\necho "proxy: $https_proxy $*"\n'
            'while [ "$1" != --requirement ]; do shift; done; cat "$2"\n'
        )
        python.chmod(0o755)
        done = gather(home, tmp_path / "folder")
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    return call


def test_an_installation_without_a_base_is_refused(tmp_path):
    write_manifest(tmp_path)
    (tmp_path / "base").rename(tmp_path / "gone")
    done = gather(tmp_path, tmp_path / "wheelhouse")
    assert done.returncode == 1
    assert done.stderr.startswith(f"wheelhouse: {tmp_path}/base is missing: build")


def test_pip_is_told_of_the_proxy(called):
    first, *_ = called(proxy="http://proxy.example:3128")
    assert first.startswith("proxy: http://proxy.example:3128 -m pip ")
    assert "--no-binary toy" in first
    assert "--proxy" not in first


def test_passwords_that_the_manifest_does_not_keep(called, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://me:word@proxy.example")
    first, *_ = called(proxy="http://***@proxy.example", pip_index="https://***@host/simple")
    assert first.startswith("proxy: http://me:word@proxy.example -m pip ")
    assert first.endswith("--index-url https://host/simple")


def test_what_compiles_mpi4py_is_there_though_its_wheel_was_kept(called):
    assert [line for line in called() if line.startswith("cython==")]


def test_what_was_made_for_torch_comes_from_its_index(tmp_path):
    """torchvision 0.28.0+cpu is on no other."""
    home = tmp_path / "home"
    index = f"file://{tmp_path}/torch-index"
    write_manifest(home, torch_index=index)
    said = home / "base/share/gear/record/pip/001.json"
    found = {
        name: {
            "url": f"{index}/{name}-1.0-py3-none-any.whl",
            "archive_info": {"hashes": {"sha256": "0"}},
        }
        for name in ("torch", "torchvision", "torchaudio")
    }
    said.write_text(
        json.dumps(
            {
                "install": [
                    {"metadata": {"name": name, "version": "1.0"}, "download_info": info}
                    for name, info in found.items()
                ]
            }
        )
    )
    (home / "bin").mkdir()
    python = home / "bin" / "python"
    shows = 'for each; do case $each in *.txt) cat "$each" ;; esac; done'
    python.write_text(f'#!/bin/sh\necho "$@"\n{shows}\n')
    python.chmod(0o755)
    done = gather(home, tmp_path / "house")
    assert done.returncode == 0, done.stderr
    [command] = [line for line in done.stderr.splitlines() if " download " in line]
    assert command.endswith(f"--index-url {index}")
    assert all(f"{name}==1.0" in done.stderr for name in found)
