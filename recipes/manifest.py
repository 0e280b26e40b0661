"""Writes share/gear/manifest.json of a build: what is installed, to the last hash.

The same build gives the same bytes: no time, no order of a dictionary, no path that differs from
build to build (those below the build are written as @BUILD@). Run by the build's own Python.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlparse

FORMAT = 1


def key_values(path: Path, separator: str) -> dict[str, str]:
    pairs = (line.split(separator, 1) for line in path.read_text().splitlines() if line)
    return {key.strip(): value.strip() for key, value in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def downloads(record: Path) -> dict[tuple[str, str], dict[str, str | None]]:
    """(name, version) -> hash and file name of what pip installed, by its reports."""
    found = {}
    for report in sorted((record / "pip").glob("*.json")):
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


def packages(record: Path) -> list[dict[str, str | None]]:
    by_pip = downloads(record)
    rows = []
    for distribution in importlib.metadata.distributions():
        name, version = normal(distribution.metadata["Name"]), distribution.version
        row = {"name": name, "version": version, "sha256": None, "source": "python -m venv"}
        row |= by_pip.get((name, version), {})
        built = record / "packages" / name
        if built.exists():
            _, digest, source = built.read_text().splitlines()
            row |= {"sha256": digest or None, "source": source}
        if name == "gear-replay":
            row |= {"sha256": None, "source": "this repository"}  # its hash is gear.source_hash
        rows.append(row)
    return sorted(rows, key=lambda row: str(row["name"]))


def patches(folder: Path) -> list[dict[str, str]]:
    """What was applied, each with the reason that its head gives ("Why: ...", a paragraph)."""
    rows = []
    for path in sorted(folder.glob("*")):
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
    share = arguments.build / "share" / "gear"
    record = share / "record"
    options = sorted((share / "options").glob("*"))
    manifest = {
        "format": FORMAT,
        "gear": {
            "version": arguments.version,
            "kind": arguments.kind,
            "source_hash": arguments.source_hash,
        },
        "site": key_values(share / "site", " = "),
        "tools": {
            path.name: path.read_text().strip() for path in sorted((record / "tools").glob("*"))
        },
        "packages": packages(record),
        "patches": patches(share / "patches"),
        "options": {path.name: key_values(path, "=") for path in options},
        "steps": arguments.steps.split(),
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False).replace(
        str(arguments.build), "@BUILD@"
    )
    written = share / "manifest.json.tmp"
    written.write_text(text + "\n")
    written.rename(share / "manifest.json")


if __name__ == "__main__":
    main()
