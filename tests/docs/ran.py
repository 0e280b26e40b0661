"""The record of what was run: a file in build/documented for each documented command and runner.

A runner is a test or a script. It calls `ran` when a command of a document has ended well, with the
command as the document has it; tools/documented.py says who has to, and compares. CI begins without
the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from dataclasses import asdict, dataclass

from docs.documents import ROOT, commands

FOLDER = ROOT / "build" / "documented"

# What a machine may put in the place of documented text, and nothing else; each as an expression.
# It may also add words: settings, and what cuts a training short.
MAY_BE = {
    "/opt/gear": "/.+",  # where tests install
    "/opt/other": "/.+",
    "~": "/.+",  # their home
    "4": r"\d+",  # ranks
    "cuda": "cpu",  # where there is no GPU
}


@dataclass(frozen=True)
class Record:
    """``by`` is the runner's path; ``instead`` what it ran. With ``because``, it left the command
    out."""

    command: str
    by: str
    instead: str
    because: str = ""


def is_a_run_of(command: str, instead: str) -> bool:
    """The words of the one are those of the other, in their order, but for MAY_BE."""

    def pattern(word: str) -> str:
        parts = re.split(f"({'|'.join(map(re.escape, MAY_BE))})", word)
        return "".join(
            f"(?:{re.escape(p)}|{MAY_BE[p]})" if p in MAY_BE else re.escape(p) for p in parts
        )

    given = iter(shlex.split(instead))
    return all(
        any(re.fullmatch(pattern(word), own) for own in given) for word in shlex.split(command)
    )


def keep(record: Record) -> None:
    if record.command not in {each.text for each in commands()}:
        raise ValueError(f"no document has the command: {record.command}")
    if not is_a_run_of(record.command, record.instead):
        raise ValueError(f"{record.instead}\nis no run of what is documented:\n{record.command}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(record), indent=2)
    name = hashlib.sha256(f"{record.command}\n{record.by}".encode()).hexdigest()[:16]
    mine = FOLDER / f".{name}.{os.getpid()}"
    mine.write_text(text + "\n", encoding="utf-8")
    mine.replace(FOLDER / f"{name}.json")


def ran(command: str, instead: str = "", by: str = "") -> None:
    """Keeps that a documented command has ended well.

    Args:
        instead: what was run, where that is not the very text.
        by: the runner's path in the repository; that of the running test by default.

    Raises:
        ValueError: no document has the command, or `instead` is another one.
    """
    by = by or os.environ["PYTEST_CURRENT_TEST"].split("::")[0]
    keep(Record(command, by, instead or command))


def records() -> list[Record]:
    return [Record(**json.loads(path.read_text())) for path in sorted(FOLDER.glob("*.json"))]
