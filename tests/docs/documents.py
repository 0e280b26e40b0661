"""The documents of the repository and the code blocks in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".", "benchmarks", "docs", "recipes")
DOCUMENTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))

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


def blocks(language: str, place: str | None = "") -> list[Block]:
    """Every block in that language and for that place (None: for any), in all documents."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            own = match["place"] or ""
            if match["language"] == language and place in (None, own):
                before = text[: match.start("code")]
                section = ["", *re.findall(r"^## (.*)", before, re.MULTILINE)][-1]
                line = before.count("\n") + 1
                rest = (language, own, match["code"], match["output"])
                found.append(Block(document, section, line, *rest))
    return found


@dataclass(frozen=True)
class Command:
    """A line of a bash block, or a target of make that a text names: what a reader may type.

    ``text`` is without its comment, and in one line where the document continues it in several.
    ``place`` is that of the block.
    """

    where: str
    place: str
    text: str


def lines_of(block: Block) -> list[str]:
    """The commands of a bash block."""
    code = re.sub(r"\\\n\s*", "", block.code)
    lines = (re.sub(r"(^|\s+)#.*$", "", line).strip() for line in code.splitlines())
    return [line for line in lines if line]


def commands() -> list[Command]:
    """Every command of every document."""
    found = [
        Command(block.name, block.place, text)
        for block in blocks("bash", None)
        for text in lines_of(block)
    ]
    for document in DOCUMENTS:
        if document.name == "CHANGELOG.md":
            continue  # a history
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(r"`make\s+([\w-]+)`", text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Command(f"{document.relative_to(ROOT)}:{line}", "", f"make {match[1]}"))
    return found


def documented(pattern: str) -> str:
    """The one command that this pattern matches from its begin to its end."""
    found = {each.text for each in commands() if re.fullmatch(pattern, each.text)}
    assert len(found) == 1, f"{pattern}: not one command of the documents but {sorted(found)}"
    return found.pop()


def launching(launcher: str, size: int) -> tuple[str, list[str]]:
    """The guide's command by which this launcher starts `gear train` on one machine, and its words,
    of so many ranks in place of four."""
    command = documented(rf"{launcher} (?!.*--host).*\btrain dist=(ddp|deepspeed)\b.*")
    adapted, changed = re.subn(r"(?<=[ =])4(?= )", str(size), command)
    assert changed == 1, f"{command}: this looks for the number of ranks"
    return command, shlex.split(adapted)
