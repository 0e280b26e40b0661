"""`gear check --manifest`: an installation, and whether it still is what was built.

The manifest is `share/gear/manifest.json` of the installation, written by recipes/build.sh. It is
compared with the installation that it lies in, with the base that this stands on, `base` in it, and
with the environment beneath that, if the site file named one (stand_on); of that by versions alone,
whichever Python asks: a venv that extends the module has packages of its own, and they are no
difference. Compared are versions, patches, and which files there are, by size: files are not read.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gear.errors import CorruptData, InvalidArgument, IoError

FORMAT = 1
PARTS = {"gear", "site", "tools", "packages", "patches", "options", "steps"}
PLACE = Path("share/gear/manifest.json")
BASE = Path("base")
PATCHES = BASE / "share/gear/patches"

Manifest = dict[str, Any]


def run(file: str, as_json: bool) -> int:
    """Print the manifest and the differences; returns 1 if there are any."""
    path = Path(file) if file else _of_the_module()
    manifest = read(path)
    differences = list(find_differences(manifest, path.absolute().parent.parent.parent))
    if as_json:
        found = {"path": str(path), "manifest": manifest, "differences": differences}
        print(json.dumps(found, indent=2))
    else:
        _print_tables(path, manifest)
        for difference in differences:
            print(f"different: {difference}")
        if not differences:
            print("the installation is as the manifest says")
    return 1 if differences else 0


def read(path: Path) -> Manifest:
    """The manifest in a file. Raises CorruptData if it is none, or of a newer format."""
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise IoError(f"[manifest] {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CorruptData(f"[manifest] {path} is not JSON: {error}") from error
    given = manifest.get("format") if isinstance(manifest, dict) else None
    if given != FORMAT:
        raise CorruptData(
            f"[manifest] {path} has format {given}, and this GEAR reads {FORMAT}: use the gear "
            "command of that installation"
        )
    if lacking := sorted(PARTS - set(manifest)):
        raise CorruptData(f"[manifest] {path} lacks {', '.join(lacking)}: build the site again")
    return dict(manifest)


def find_differences(manifest: Manifest, home: Path) -> Iterator[str]:
    """One sentence for each difference between the manifest and the installation in `home`."""
    layers = [home, home / BASE]
    folders = [str(path) for each in layers for path in each.glob("lib/python3.*/site-packages")]
    if len(folders) != len(layers):
        raise InvalidArgument(
            f"[manifest] {home} is no installation: it or its {BASE} lacks "
            f"lib/python3.*/site-packages; name {PLACE} inside an installation"
        )
    given = manifest["site"].get("stand_on")
    beneath = (
        [str(path) for path in Path(given).glob("lib/python3.*/site-packages")] if given else []
    )
    installed: dict[str, importlib.metadata.Distribution] = {}
    for each in importlib.metadata.distributions(path=folders + beneath):
        if not each.metadata["Name"]:
            continue  # what an uninstallation left beneath
        installed.setdefault(_normal(each.metadata["Name"]), each)  # what Python imports
    for package in manifest["packages"]:
        found = installed.pop(_normal(package["name"]), None)
        if found is None:
            yield f"{package['name']} {package['version']} is not installed"
        elif found.version != package["version"]:
            yield f"{package['name']} is {found.version}, was {package['version']}"
        elif str(found.locate_file("")).rstrip("/") not in beneath:
            yield from _changed_files(package["name"], found)
    for name, each in sorted(installed.items()):
        yield f"{name} {each.version} was installed afterwards"
    for patch in manifest["patches"]:
        file = PATCHES / patch["file"]
        if not (home / file).is_file():
            yield f"{file} is missing"
        elif hashlib.sha256((home / file).read_bytes()).hexdigest() != patch["sha256"]:
            yield f"{file} was changed"


def _changed_files(name: str, distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """The first file of a package that is gone, or of another size than when it was installed."""
    # Not distribution.files: from Python 3.12 on, it leaves out those that are missing.
    for file, _, size in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        path = Path(str(distribution.locate_file(file)))
        if not size or path.suffix == ".pyc":
            continue
        if not path.is_file():
            yield f"{name}: {file} is missing"
            return
        if path.stat().st_size != int(size):
            yield f"{name}: {file} has {path.stat().st_size} bytes, had {size}"
            return


def _of_the_module() -> Path:
    home = os.environ.get("GEAR_HOME")
    if not home:
        raise InvalidArgument(
            "[manifest] GEAR_HOME is not set, no module of GEAR is loaded: module load gear, or "
            "name the file: gear check --manifest FILE"
        )
    return Path(home) / PLACE


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _print_tables(path: Path, manifest: Manifest) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    gear = manifest["gear"]
    facts = Table(show_header=False, box=box.SIMPLE_HEAD)
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("source", gear["source_hash"])
    for area in ("tools", "site"):
        for name, value in manifest[area].items():
            if value:
                facts.add_row(f"{area} {name}", str(value))
    for step, options in manifest["options"].items():
        facts.add_row(f"options {step}", " ".join(f"{k}={v}" for k, v in options.items()))
    for patch in manifest["patches"]:
        facts.add_row(f"patch {patch['file']}", patch["why"])
    facts.add_row("steps", " ".join(manifest["steps"]))

    packages = Table(box=box.SIMPLE_HEAD)
    for heading in ("package", "version", "sha256", "source"):
        packages.add_column(heading)
    for package in manifest["packages"]:
        digest = (package["sha256"] or "")[:12]
        packages.add_row(package["name"], package["version"], digest, package["source"])
    print(f"gear/{gear['version']}-{gear['kind']}, {path}")
    console = Console()
    console.print(facts)
    console.print(packages)
