#!/usr/bin/env python3
"""Writes the version and the checksum of a release tarball into the recipes that fetch it.

    tools/stamp_recipes.py dist/gear_replay-0.1.0.tar.gz      (made by `make dist`)
    tools/stamp_recipes.py --show                             what they say, a line each

These lines change:

    recipes/spack/spack_repo/gear/packages/*/package.py: version("0.1.0", sha256="...")
    recipes/easybuild/*.eb: version = "0.1.0" and checksums = ["..."]
    recipes/conda/meta.yaml: {% set version = "0.1.0" %} and sha256: ...

Of Spack's versions the line of the tarball's version changes; a new one stands before the first. An
easyconfig is renamed to its version.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUM = "[0-9a-f]{64}"
SPACK = re.compile(rf'^ *version\("(?P<version>[^"]+)".*?sha256="(?P<sum>{SUM})".*\n', re.M)
EASYBUILD = re.compile(
    rf"^version = [\"'](?P<version>[^\"']+)[\"'](?P<between>.*?)"
    rf"^checksums = \[[\"'](?P<sum>{SUM})[\"']\]",
    re.M | re.S,
)
CONDA = re.compile(
    rf'set version = "(?P<version>[^"]+)"(?P<between>.*?)^ *sha256: (?P<sum>{SUM})$', re.M | re.S
)


def recipes(root: Path) -> dict[Path, re.Pattern[str]]:
    """Each recipe that is there, and what finds its version and its checksum."""
    kinds = {
        "recipes/spack/spack_repo/gear/packages/*/package.py": SPACK,
        "recipes/easybuild/*.eb": EASYBUILD,
        "recipes/conda/meta.yaml": CONDA,
    }
    return {path: found for glob, found in kinds.items() for path in sorted(root.glob(glob))}


def said(path: Path, form: re.Pattern[str]) -> tuple[str, str]:
    """The version and the checksum in a recipe: of Spack's several, the first."""
    match = form.search(path.read_text(encoding="utf-8"))
    if match is None:
        raise SystemExit(
            f"stamp_recipes: {path} has no version with a sha256 of 64 hexadecimal digits"
        )
    return match["version"], match["sum"]


def with_stamp(line: str, match: re.Match[str], version: str, digest: str) -> str:
    return line.replace(match["version"], version, 1).replace(match["sum"], digest, 1)


def stamp(path: Path, form: re.Pattern[str], version: str, digest: str) -> None:
    said(path, form)
    text = path.read_text(encoding="utf-8")
    matches = list(form.finditer(text))
    of_version = [each for each in matches if each["version"] == version]
    match = (of_version or matches)[0]
    new = with_stamp(match[0], match, version, digest)
    keep = match[0] if form is SPACK and not of_version else ""
    path.write_text(text[: match.start()] + new + keep + text[match.end() :], encoding="utf-8")
    if form is EASYBUILD and match["version"] in path.name:
        path.rename(path.with_name(path.name.replace(match["version"], version)))


def version_of(tarball: Path) -> str:
    match = re.fullmatch(r"gear_replay-([^-]+)\.tar\.gz", tarball.name)
    if match is None or not tarball.is_file():
        raise SystemExit(
            f"stamp_recipes: {tarball}: given this, allowed is an existing "
            "gear_replay-<version>.tar.gz, which `make dist` makes"
        )
    return match[1]


def main(words: list[str], root: Path = ROOT) -> int:
    if words == ["--show"]:
        for path, form in recipes(root).items():
            print(path.relative_to(root), *said(path, form))
    elif len(words) == 1 and not words[0].startswith("-"):
        tarball = Path(words[0])
        version = version_of(tarball)
        digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
        for path, form in recipes(root).items():
            stamp(path, form, version, digest)
        print(f"stamp_recipes: {version} {digest} in {len(recipes(root))} recipes")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
