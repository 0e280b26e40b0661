"""tools/stamp_recipes.py: a tarball's version and checksum in each kind of recipe."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "stamp_recipes.py"
KEYS = runpy.run_path(str(SCRIPT))
OLD = "0" * 64
SPACK = f'''class GearCore(CMakePackage):
    url = "gear_replay-0.1.0.tar.gz"

    # A release stamps it again.
    version("0.1.0", sha256="{OLD}")

    depends_on("cmake@3.20:", type="build")
'''
EASYBUILD = f"name = 'gear'\nversion = '0.1.0'\n\nchecksums = ['{OLD}']\n"
CONDA = f'{{% set version = "0.1.0" %}}\nsource:\n  sha256: {OLD}\n'
PLACES = {
    "recipes/spack/spack_repo/gear/packages/gear_core/package.py": SPACK,
    "recipes/easybuild/gear-0.1.0.eb": EASYBUILD,
    "recipes/conda/meta.yaml": CONDA,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in PLACES.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def tarball(folder: Path, version: str) -> tuple[str, str]:
    path = folder / f"gear_replay-{version}.tar.gz"
    path.write_bytes(version.encode())
    return str(path), hashlib.sha256(version.encode()).hexdigest()


def test_the_same_version_gets_the_checksum_and_nothing_else_changes(root: Path) -> None:
    path, digest = tarball(root, "0.1.0")
    assert KEYS["main"]([path], root) == 0
    for name, text in PLACES.items():
        assert (root / name).read_text() == text.replace(OLD, digest), name


def test_a_new_version_is_added_to_spack_and_replaces_the_others(root: Path) -> None:
    path, digest = tarball(root, "0.2.0")
    assert KEYS["main"]([path], root) == 0
    spack = (root / "recipes/spack/spack_repo/gear/packages/gear_core/package.py").read_text()
    new = f'    version("0.2.0", sha256="{digest}")\n'
    old = f'    version("0.1.0", sha256="{OLD}")\n'
    assert spack == SPACK.replace(old, new + old)
    easyconfig = root / "recipes/easybuild/gear-0.2.0.eb"
    assert [*easyconfig.parent.iterdir()] == [easyconfig]
    assert easyconfig.read_text() == EASYBUILD.replace("0.1.0", "0.2.0").replace(OLD, digest)
    conda = (root / "recipes/conda/meta.yaml").read_text()
    assert conda == CONDA.replace("0.1.0", "0.2.0").replace(OLD, digest)


def test_show_tells_what_they_say(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert KEYS["main"](["--show"], root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"{name} 0.1.0 {OLD}" for name in PLACES)


def test_a_recipe_without_a_checksum_is_refused_by_name(root: Path) -> None:
    (root / "recipes/conda/meta.yaml").write_text("package:\n")
    path, _ = tarball(root, "0.1.0")
    with pytest.raises(SystemExit, match=r"meta\.yaml has no version with a sha256"):
        KEYS["main"]([path], root)


@pytest.mark.parametrize("name", ["gear-0.1.0.tar.gz", "gear_replay-0.1.0.zip", "absent/x"])
def test_what_is_no_tarball_of_a_release_is_refused(root: Path, name: str) -> None:
    with pytest.raises(SystemExit, match="allowed is an existing gear_replay"):
        KEYS["main"]([name], root)


def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert KEYS["main"](["--what"]) == 2
    assert "stamp_recipes.py" in capsys.readouterr().err
