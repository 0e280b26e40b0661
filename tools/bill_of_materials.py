#!/usr/bin/env python3
"""Writes FOLDER/gear_replay-<version>.cdx.json: what a release consists of, as CycloneDX 1.6.

    build/dist/tools/bin/python tools/bill_of_materials.py FOLDER

One component for the tarball and each wheel, with its checksum; under each wheel what was compiled
into it; and what pip installs beside. The same files give the same bytes. tools/dist.sh calls it.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5
from zipfile import ZipFile

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "requirements" / "constraints.txt"
LIBSTDCXX = "GPL-3.0-or-later WITH GCC-exception-3.1"


def pinned(name: str) -> str:
    found = re.search(rf"^{name}==(\S+)", PINS.read_text(encoding="utf-8"), re.M)
    if found is None:
        raise SystemExit(f"bill_of_materials: {PINS} pins no {name}")
    return found[1]


def library(name: str, version: str, license_: str, purl: str = "") -> dict[str, object]:
    key = "expression" if " WITH " in license_ else "license"
    value = license_ if key == "expression" else {"name": license_}
    rest = {"purl": purl} if purl else {}
    return {
        "type": "library",
        "name": name,
        "version": version,
        "licenses": [{key: value}],
        **rest,
    }


def compiled_in(wheel: Path) -> Iterator[dict[str, object]]:
    """What stands in the extension beside GEAR's own code."""
    version = pinned("pybind11")
    yield library("pybind11", version, "BSD-3-Clause", f"pkg:pypi/pybind11@{version}")
    yield library("libstdc++ and libgcc", version_of_gcc(wheel), LIBSTDCXX)
    if cuda := re.search(r"\+cu(\d+)(\d)-", wheel.name):
        yield library("CUDA runtime", f"{cuda[1]}.{cuda[2]}", "NVIDIA CUDA Toolkit EULA")


def version_of_gcc(wheel: Path) -> str:
    """Of the compiler here that tools/dist.sh takes for the machine that the wheel is for."""
    machine = next(each for each in ("aarch64", "x86_64") if each in wheel.name)
    compiler = "g++" if machine == platform.machine() else f"{machine}-linux-gnu-g++"
    command = [compiler, "-dumpfullversion"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def file(path: Path) -> dict[str, object]:
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    found: dict[str, object] = {
        "type": "file",
        "name": path.name,
        "bom-ref": path.name,
        "hashes": [{"alg": "SHA-256", "content": content}],
    }
    if path.suffix == ".whl":
        found["components"] = list(compiled_in(path))
    return found


def requirements(files: list[Path]) -> list[str]:
    """Those without an extra, of the first wheel."""
    for wheel in (each for each in files if each.suffix == ".whl"):
        with ZipFile(wheel) as archive:
            (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
            stated = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
        return [each for each in stated if "extra ==" not in each]
    return []


def bill(files: list[Path], version: str) -> dict[str, object]:
    components = [file(path) for path in files]
    beside = [
        {"type": "library", "name": need, "bom-ref": need, "scope": "required"}
        for need in requirements(files)
    ]
    sums = json.dumps([each["hashes"] for each in components])
    ref = f"gear-replay@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, sums)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": "gear-replay",
                "version": version,
                "bom-ref": ref,
                "purl": f"pkg:pypi/gear-replay@{version}",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [*components, *beside],
        "dependencies": [{"ref": ref, "dependsOn": [str(each["bom-ref"]) for each in beside]}],
    }


def main(folder: Path) -> None:
    files = sorted([*folder.glob("gear_replay-*.tar.gz"), *folder.glob("gear_replay-*.whl")])
    (tarball,) = folder.glob("gear_replay-*.tar.gz")
    version = tarball.name.removeprefix("gear_replay-").removesuffix(".tar.gz")
    text = json.dumps(bill(files, version), indent=2) + "\n"
    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"bill_of_materials: this is no CycloneDX: {fault}")
    (folder / f"gear_replay-{version}.cdx.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
