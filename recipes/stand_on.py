"""Makes the environment that runs this stand on another one, of the same Python: it sees the
packages of that one beneath its own, and has their commands, run by its own Python.

    ENVIRONMENT/bin/python stand_on.py BASE
    BASE/bin/python stand_on.py --versions BASE     what it would see there, name==version a line

The base is left as it is, and may carry several such environments. Both stay where they are. Of its
commands are taken those of its packages: what else is in bin, of conda or by hand, as another MPI,
stays there.
"""

from __future__ import annotations

import csv
import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

OWN = ("python", "activate", "Activate")  # what every environment has of its own

# pip's form for an interpreter of any length: the shell reads a command, Python two strings.
HEAD = "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n"


def packages_of(base: Path) -> Path:
    own = Path(sysconfig.get_path("purelib"))
    packages = base / own.relative_to(sys.prefix)
    if not packages.is_dir():
        sys.exit(
            f"[layers] {packages} is missing: {base} belongs to another Python, or is incomplete"
        )
    return packages


def see_packages(packages: Path) -> None:
    """By a line that Python runs at each start: .pth files of the base count, too."""
    own = Path(sysconfig.get_path("purelib"))
    (own / "base.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")


def versions(packages: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in importlib.metadata.distributions(path=[str(packages)]):
        if each.metadata["Name"]:  # none: what an uninstallation left
            name = re.sub(r"[-_.]+", "-", each.metadata["Name"]).lower()
            found.setdefault(name, each.version)
    return found


def commands(base: Path, packages: Path) -> Iterator[Path]:
    """Of the packages: conda lists the commands of some as entry points alone."""
    names = set()
    for each in importlib.metadata.distributions(path=[str(packages)]):
        names |= {entry.name for entry in each.entry_points if entry.group == "console_scripts"}
        for row in csv.reader((each.read_text("RECORD") or "").splitlines()):
            file = Path(os.path.normpath(packages / row[0])) if row else packages
            if file.parent == base / "bin":
                names.add(file.name)
    for name in sorted(names):
        file = base / "bin" / name
        if not name.startswith(OWN) and os.access(file, os.X_OK):
            yield file


def run_by_python(line: bytes) -> bool:
    """Whether a first line names a Python: #!/a/bin/python3, #!/usr/bin/env python."""
    words = line[2:].split() if line.startswith(b"#!") else []
    if words and words[0].endswith(b"/env"):
        words = words[1:]
    return bool(words) and words[0].rsplit(b"/", 1)[-1].startswith(b"python")


def take_command(file: Path, place: Path) -> None:
    """A link to `file`; if Python runs it, a copy for this Python."""
    lines = file.read_bytes().splitlines(keepends=True)
    if lines and run_by_python(lines[0]):
        text = lines[1:]
    elif len(lines) > 3 and lines[0] == b"#!/bin/sh\n" and lines[1].startswith(b"'''exec'"):
        text = lines[3:]
    else:
        place.symlink_to(file)
        return
    head = HEAD.format(python=Path(sys.prefix, "bin", "python")).encode()
    place.write_bytes(head + b"".join(text))
    place.chmod(0o755)


def main(words: list[str]) -> None:
    base = Path(words[-1])
    packages = packages_of(base)
    if words[0] == "--versions":
        found = versions(packages)
        print(*(f"{name}=={found[name]}" for name in sorted(found)), sep="\n")
        return
    see_packages(packages)
    for file in commands(base, packages):
        place = Path(sys.prefix, "bin", file.name)
        if not place.exists():  # its own pip
            take_command(file, place)


if __name__ == "__main__":
    main(sys.argv[1:])
