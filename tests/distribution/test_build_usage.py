"""Arguments and site files: what is wrong is said in one sentence, before anything is done."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from distribution.recipe import BUILD, SITES, Recipe, small_site


def build(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([str(BUILD), *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_help_shows_every_option() -> None:
    code, output, errors = build("--help")
    assert code == 0
    assert not errors
    for option in ("SITE", "--prefix", "--dry-run", "--resume", "--only", "--uninstall"):
        assert option in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "[usage] no site file given"),
        (["SITE"], "[usage] no --prefix given"),
        (["SITE", "--prefix"], "[usage] --prefix needs a value"),
        (["SITE", "SITE", "--prefix", "/x"], "[usage] more than one site file"),
        (["SITE", "--prefix", "/a b"], "[usage] --prefix: given '/a b', allowed letters"),
        (["SITE", "--prefix=~/gear"], "[usage] --prefix: given '~/gear', and no shell has put"),
        (["SITE", "--prefix", "/x", "--fast"], "[usage] unknown option: given --fast, allowed"),
        (
            ["SITE", "--prefix", "/x", "--only", "lunch"],
            "[usage] --only: no such step: given lunch",
        ),
        (
            ["SITE", "--prefix", "/x", "--only", "torch"],
            "[usage] --only torch: this site has torch",
        ),
        (["/no/site.conf", "--prefix", "/x"], "[site] no such site file: given /no/site.conf"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], said: str, tmp_path: Path) -> None:
    site = str(small_site(tmp_path / "site.conf"))
    code, output, errors = build(*[site if word == "SITE" else word for word in arguments])
    assert code == 2
    assert not output
    assert errors.startswith(f"build: {said}")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nccl_source = nccl.tar.gz", "given 'nccl.tar.gz', allowed an absolute path, or a URL"),
        ("torhc = 2.13.0", "no such key: given 'torhc', allowed"),
        ("just words", "given 'just words', allowed 'key = value' or a comment"),
        ("env.BAD-NAME = 1", "given 'env.BAD-NAME = 1', allowed 'key = value'"),
        ("env.PATH = /opt/tool/bin", "'env.PATH' is not the site's to set: given '/opt/tool/bin'"),
        ("env.GEAR_HOME = /x", "'env.GEAR_HOME' is not the site's to set"),
        ("env.PYTHONNOUSERSITE = 0", "'env.PYTHONNOUSERSITE' is not the site's to set"),
        ("env.X = $HOME/x", "given '$HOME/x', allowed a value without $ (nothing is expanded"),
        ("torch = latest", "bad value of 'torch': given 'latest', allowed a version"),
        ("horovod = yes", "bad value of 'horovod': given 'yes', allowed on or off"),
        ("nccl = $NCCL_HOME", "bad value of 'nccl': given '$NCCL_HOME', allowed off, wheel"),
        (
            "nccl_profile = fast",
            "bad value of 'nccl_profile': given 'fast', allowed release or debug",
        ),
        (
            "cuda_home = ~/cuda",
            "bad value of 'cuda_home': given '~/cuda', allowed an absolute path",
        ),
        ("cuda_architectures = sm_90", "given 'sm_90', allowed compute capabilities, as in 80;90"),
        ("jobs = 0", "bad value of 'jobs': given '0', allowed a whole number from 1 on"),
        ("proxy = here", "bad value of 'proxy': given 'here', allowed a URL"),
        ("modules = gcc; rm -r /", "bad value of 'modules': given 'gcc; rm -r /', allowed names"),
        ("cxx = g++ -O3", "bad value of 'cxx': given 'g++ -O3', allowed a command"),
        ("jobs = 2\njobs = 3", "'jobs' is set twice, first in line 1"),
        ("nccl = wheel", "nccl = wheel needs CUDA: set cuda_home"),
        ("cuda_home = /cuda\nnccl = source", "nccl = source needs nccl_source"),
        ("torch = off", "horovod = on needs torch: set torch to a version, or horovod = off"),
        ("mpi = off", "horovod = on needs MPI: set mpi = on, or horovod = off"),
    ],
)
def test_wrong_site_file_is_one_sentence(line: str, said: str, tmp_path: Path) -> None:
    site = tmp_path / "site.conf"
    site.write_text(line + "\n")
    done = Recipe(site, tmp_path / "prefix").run()
    assert done.code == 2
    assert said in done.sentence()
    assert str(site) in done.sentence()
    assert done.errors.count("\n") == 1
    assert not (tmp_path / "prefix").exists()


def test_a_site_file_may_be_written_loosely(tmp_path: Path) -> None:
    site = tmp_path / "site.conf"
    site.write_bytes(
        b"# a comment\r\n\r\n  torch=off\r\nmpi =off\nhorovod= off\n\tdeepspeed = off  \n"
        b"mpi4py=off\n"
        b"name = a # is no comment here\nmodules =\nenv.EMPTY =\nenv.PATHS = /a b:/c=d"
    )
    output = Recipe(site, tmp_path / "prefix").succeed("--dry-run")
    assert "[7/7] manifest" in output
    assert "'ENV.PATHS=/a b:/c=d'" in output
    assert "ENV.EMPTY=" in output


def test_the_template_has_every_key_with_its_default() -> None:
    table = re.search(r"^site_keys='\n(.*?)^'", (BUILD.parent / "site.sh").read_text(), re.M | re.S)
    assert table is not None
    keys = {}
    for line in table.group(1).splitlines():
        key, _, *default = line.split()
        keys[key] = " ".join(default)
    template = (SITES / "template.conf").read_text()
    assert dict(re.findall(r"^([a-z0-9_]+) = ?(.*)$", template, re.M)) == keys
