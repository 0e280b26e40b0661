"""The documents of the repository and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line of code."""

    document: Path
    line: int
    language: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(language: str) -> list[Block]:
    """Every block in that language, in all documents."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if match.group(1) == language:
                line = text[: match.start(2)].count("\n") + 1
                found.append(Block(document, line, language, match.group(2)))
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
