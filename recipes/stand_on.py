"""Makes the environment that runs this stand on another one, of the same Python: it sees the
packages of that one beneath its own, and has its commands, run by its own Python.

    ENVIRONMENT/bin/python stand_on.py BASE

The base is left as it is, and may carry several such environments. Both stay where they are.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

OWN = ("python", "activate", "Activate")  # what every environment has of its own

# pip's form for an interpreter of any length: the shell reads a command, Python two strings.
HEAD = "#!/bin/sh\n'''exec' '{python}' \"$0\" \"$@\"\n' '''\n"


def see_packages(base: Path) -> None:
    """By a line that Python runs at each start: .pth files of the base count, too."""
    own = Path(sysconfig.get_path("purelib"))
    packages = base / own.relative_to(sys.prefix)
    if not packages.is_dir():
        sys.exit(
            f"[layers] {packages} is missing: {base} belongs to another Python, or is incomplete"
        )
    (own / "base.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")


def take_command(file: Path, place: Path) -> None:
    """A link to `file`; if Python runs it, a copy for this Python."""
    lines = file.read_bytes().splitlines(keepends=True)
    if lines and lines[0].startswith(b"#!") and b"python" in lines[0]:
        text = lines[1:]
    elif len(lines) > 3 and lines[0] == b"#!/bin/sh\n" and lines[1].startswith(b"'''exec'"):
        text = lines[3:]
    else:
        place.symlink_to(file)
        return
    head = HEAD.format(python=Path(sys.prefix, "bin", "python")).encode()
    place.write_bytes(head + b"".join(text))
    place.chmod(0o755)


def main() -> None:
    base = Path(sys.argv[1])
    see_packages(base)
    for file in sorted((base / "bin").iterdir()):
        if not file.name.startswith(OWN) and os.access(file, os.X_OK):
            place = Path(sys.prefix, "bin", file.name)
            if not place.exists():  # its own pip
                take_command(file, place)


if __name__ == "__main__":
    main()
