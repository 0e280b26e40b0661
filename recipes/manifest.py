"""Writes share/gear/manifest.json of a build: what is installed, to the last hash.

The same build gives the same bytes: no time, no order of a dictionary, no path that differs from
build to build (those below the build and its base are written as @BUILD@ and @BASE@). Run by the
build's own Python.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import sys
from pathlib import Path
from urllib.parse import unquote, urlparse

FORMAT = 1


def key_values(path: Path, separator: str) -> dict[str, str]:
    pairs = (line.split(separator, 1) for line in path.read_text().splitlines() if line)
    return {key.strip(): value.strip() for key, value in pairs}


def name_of(path: Path) -> str:
    return path.name


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def downloads(base: Path) -> dict[tuple[str, str], dict[str, str | None]]:
    """(name, version) -> hash and file name of what pip installed into a base, by its reports."""
    found = {}
    for report in sorted((base / "share/gear/record/pip").glob("*.json")):
        try:
            items = json.loads(report.read_text())["install"]
        except json.JSONDecodeError:
            continue  # pip was killed while it wrote this, before it installed anything
        for item in items:
            info, metadata = item["download_info"], item["metadata"]
            digest = info.get("archive_info", {}).get("hashes", {}).get("sha256")
            name = Path(unquote(urlparse(info["url"]).path)).name
            found[normal(metadata["name"]), metadata["version"]] = {
                "sha256": digest,
                "source": name,
            }
    return found


def check_whole(layers: list[Path]) -> None:
    """Ends the program if pip was interrupted in a package. It takes one that has METADATA for
    installed, and writes the commands, and RECORD with INSTALLER in it, after that."""
    for distribution in importlib.metadata.distributions():
        place = Path(str(distribution.locate_file("")))
        layer = next((each for each in layers if place.is_relative_to(each)), None)
        if layer is None:
            continue
        about = f"{distribution.metadata['Name']} {distribution.version}"
        if ".dist-info/INSTALLER," not in (distribution.read_text("RECORD") or ""):
            sys.exit(f"error: {about} in {layer} is not installed whole, its RECORD is not pip's")
        for entry in distribution.entry_points:
            own = entry.group == "console_scripts" and not entry.name.startswith("pip")
            if own and not (layer / "bin" / entry.name).exists():
                sys.exit(f"error: {about} in {layer} lacks its command bin/{entry.name}")


def packages(build: Path, base: Path) -> list[dict[str, str | None]]:
    by_pip = downloads(base)
    layers = [build, base, build.parent / base.name]
    given = key_values(build / "share/gear/site", " = ").get("stand_on")
    rows: dict[str, dict[str, str | None]] = {}
    for distribution in importlib.metadata.distributions():
        if not distribution.metadata["Name"]:
            continue  # what an uninstallation left beneath
        name, version = normal(distribution.metadata["Name"]), distribution.version
        if name in rows:
            continue  # of the environment beneath, hidden by what is above it
        row = {"name": name, "version": version, "sha256": None, "source": "python -m venv"}
        place = Path(str(distribution.locate_file("")))
        if not any(place.is_relative_to(layer) for layer in layers):
            if given and place.is_relative_to(given):  # else of its .pth files: of no layer
                rows[name] = row | {"source": "the environment that this stands on"}
            continue
        row |= by_pip.get((name, version), {})
        built = base / "share/gear/record/packages" / name
        if built.exists():
            _, digest, source = built.read_text().splitlines()
            row |= {"sha256": digest or None, "source": source}
        if place.is_relative_to(build):
            row |= {"sha256": None, "source": "this repository"}  # its hash is gear.source_hash
        rows[name] = row
    return [rows[name] for name in sorted(rows)]


def patches(base: Path) -> list[dict[str, str]]:
    """What was applied, each with the reason that its head gives ("Why: ...", a paragraph)."""
    rows = []
    for path in sorted((base / "share/gear/patches").glob("*")):
        text = path.read_bytes()
        why = re.search(r"^Why:\s*(.*(?:\n(?!\s*$|---|diff ).*)*)", text.decode(), re.M)
        reason = " ".join(why.group(1).split()) if why else ""
        digest = hashlib.sha256(text).hexdigest()
        rows.append({"file": path.name, "sha256": digest, "why": reason})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--source-hash", required=True)
    parser.add_argument("--steps", required=True)
    arguments = parser.parse_args()
    build, base = arguments.build, (arguments.build / "base").resolve()
    beside = build.parent / base.name  # base, where the prefix is named by a link
    check_whole([build, base, beside])
    share = build / "share" / "gear"
    options = [path for layer in (base, build) for path in (layer / "share/gear/options").glob("*")]
    tools = [
        path for layer in (base, build) for path in (layer / "share/gear/record/tools").glob("*")
    ]
    manifest = {
        "format": FORMAT,
        "gear": {
            "version": arguments.version,
            "kind": arguments.kind,
            "source_hash": arguments.source_hash,
        },
        "site": key_values(share / "site", " = "),
        "tools": {path.name: path.read_text().strip() for path in sorted(tools, key=name_of)},
        "packages": packages(build, base),
        "patches": patches(base),
        "options": {path.name: key_values(path, "=") for path in sorted(options, key=name_of)},
        "steps": arguments.steps.split(),
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    text = text.replace(str(build), "@BUILD@")
    text = text.replace(str(beside), "@BASE@").replace(str(base), "@BASE@")
    written = share / "manifest.json.tmp"
    written.write_text(text + "\n")
    written.rename(share / "manifest.json")


if __name__ == "__main__":
    main()
