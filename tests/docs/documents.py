"""The documents of the repository and the code blocks in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])

# A block, and the block of output right after it.
FENCE = re.compile(
    r"^```(?P<language>\w+)(?: (?P<place>\w+))?\n(?P<code>.*?)^```$"
    r"(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line of code.

    ``section`` is the heading of the second level above it. ``place`` is the second word of its
    fence: ``module`` for commands that need the installed module. ``output`` is the block of text
    right after it: what the commands print.
    """

    document: Path
    section: str
    line: int
    language: str
    place: str
    code: str
    output: str | None

    @property
    def name(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(language: str, place: str = "") -> list[Block]:
    """Every block in that language and for that place, in all documents."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if (match["language"], match["place"] or "") == (language, place):
                before = text[: match.start("code")]
                section = ["", *re.findall(r"^## (.*)", before, re.MULTILINE)][-1]
                line = before.count("\n") + 1
                rest = (language, place, match["code"], match["output"])
                found.append(Block(document, section, line, *rest))
    return found


def commands() -> list[tuple[str, str]]:
    """(place, command) for every line of every bash block, comments stripped."""
    found = []
    for block in blocks("bash"):
        for offset, line in enumerate(block.code.splitlines()):
            command = re.sub(r"(^|\s+)#.*$", "", line).strip()
            if command:
                found.append((f"{block.document.relative_to(ROOT)}:{block.line + offset}", command))
    return found


def launching(launcher: str, size: int) -> list[str]:
    """The words of the guide's command by which this launcher starts `gear train`, of so many ranks
    in place of four."""
    [command] = {c for _, c in commands() if re.match(rf"{launcher} .*\btrain dist=", c)}
    command, changed = re.subn(r"(?<=[ =])4(?= )", str(size), command)
    assert changed == 1, f"{command}: this looks for the number of ranks"
    return shlex.split(command)
