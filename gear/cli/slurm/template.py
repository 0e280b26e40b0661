"""A job script and its #SBATCH lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import gear
from gear.errors import InvalidArgument

# The short options of sbatch that say what is checked, or what templates have lines for.
LONG = {
    "-A": "account",
    "-J": "job-name",
    "-N": "nodes",
    "-a": "array",
    "-c": "cpus-per-task",
    "-n": "ntasks",
    "-o": "output",
    "-p": "partition",
    "-q": "qos",
    "-t": "time",
}
_VALUE = r"""(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^#\s]\S*)"""
_LINE = re.compile(rf"#SBATCH\s+(?P<option>-\S+?)(?:(?:=|\s+){_VALUE})?(?P<rest>\s*(?:#.*)?)")
_PLAIN = re.compile(r"[\w@%+=:,./\[\]*&|~!^(){}<>?;-]+")  # read as it stands, without quotes
_OFFERED = re.compile(r"##SBATCH\s+--(?P<option>[\w-]+)(?:=\S*)?(?P<rest>.*)")
_NEXT_PART = re.compile(r"#SBATCH\s+hetjob\b")


class Template:
    """The lines of a job script; a heterogeneous job has several parts, numbered from 0."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    @property
    def text(self) -> str:
        return "\n".join([*self._lines, ""])

    @property
    def parts(self) -> list[dict[str, str]]:
        """Of each part: long option -> value, "" for one that takes none."""
        found: list[dict[str, str]] = [{}]
        for number, part in self._header():
            line = self._lines[number]
            if _NEXT_PART.match(line):
                found.append({})
            elif match := _LINE.fullmatch(line):
                found[part][long_name(match["option"])] = unquoted(match["value"] or "")
        return found

    def set(self, option: str, value: str, part: int = 0) -> None:
        """Changes that line, turns on the one that the template offers, or adds one.

        option: as `long_name` returns it."""
        if part >= len(self.parts):
            raise InvalidArgument(
                f"[slurm] --set {part}:{option}: this job has {len(self.parts)} part(s), numbered "
                "from 0: name one of them, or leave the number out for the first"
            )
        begin, is_ = ("--", "=") if len(option) > 1 else ("-", " ")
        setting = f"#SBATCH {begin}{option}" + (f"{is_}{quoted(value)}" if value else "")
        last = offered = None
        for number, of in self._header():
            if of != part:
                continue
            line = self._lines[number]
            match = _LINE.fullmatch(line)
            if match and long_name(match["option"]) == option:
                self._lines[number] = setting + match["rest"].rstrip()
                return
            wish = _OFFERED.fullmatch(line)
            if wish and wish["option"] == option:
                offered = number, wish["rest"]
            last = number
        if offered:
            self._lines[offered[0]] = setting + offered[1]
        else:
            self._lines.insert(1 if last is None else last + 1, setting)

    def _header(self) -> Iterator[tuple[int, int]]:
        """(line, part) of each #SBATCH or ##SBATCH line before the first command."""
        part = 0
        for number, line in enumerate(self._lines):
            if line.strip() and not line.startswith("#"):
                return
            if _NEXT_PART.match(line):
                part += 1
            if line.startswith(("#SBATCH", "##SBATCH")):
                yield number, part


def quoted(value: str) -> str:
    """The value as sbatch reads it in a line of a script: a backslash takes what follows as it is,
    also between quotes."""
    if _PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def unquoted(text: str) -> str:
    """The inverse of `quoted`."""
    if text[:1] not in ("'", '"'):
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def read(name: str) -> Template:
    """The template of that name, or the file at that path."""
    path = Path(name)
    if "/" not in name and not name.endswith(".sbatch"):
        path = _folder() / f"{name}.sbatch"
        if not path.is_file():
            there = ", ".join(sorted(each.stem for each in path.parent.glob("*.sbatch")))
            raise InvalidArgument(
                f"[slurm] there is no template {name} in {path.parent}: name one of {there}, or a "
                "file of your own"
            )
    return Template(path.read_text(encoding="utf-8"))


def _folder() -> Path:
    home = os.environ.get("GEAR_HOME")
    folders = [Path(home) / "slurm"] if home else []
    folders.append(Path(gear.__file__).parents[1] / "slurm")  # a checkout
    for folder in folders:
        if (folder / "env.sh").is_file():
            return folder
    raise InvalidArgument(
        "[slurm] no templates here: they come with GEAR's module, in $GEAR_HOME/slurm, and with "
        "its sources: load the module, or give the path of a file"
    )


def long_name(option: str) -> str:
    """Of `-t`, `--time` or `time`; the letter of a short option that is not in LONG."""
    return LONG.get(option, option.lstrip("-"))
