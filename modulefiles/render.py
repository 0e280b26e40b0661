"""Writes a module file in Tcl or in Lua: gear.module, or another source of this folder.

    python render.py [--source FILE] tcl|lua --output FILE NAME=VALUE ...

The values are those that the source has as @NAME@. Of gear.module: VERSION, KIND, HOME (GEAR_HOME),
BUILD (where that leads), PYTHON (the interpreter that its environment was made with),
PYTHON_VERSION, MODULES (to depend on, separated by spaces), PROFILES (a folder with more modules,
or empty), and ENV.X=VALUE for every variable X to set. A line whose last word is an empty value is
left out. Python 3.9 or later, nothing else.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).with_name("gear.module")
PRESET = re.compile(r"ENV\.([A-Za-z_][A-Za-z0-9_]*)")

# verb -> its form in Tcl and in Lua; {0} and {1} are its words, quoted; the last is the rest of the
# line. In Tcl, `break` takes no text: neither in Environment Modules 5.2 nor in Lmod 8.6. Lmod's
# isFile takes a link for a file wherever it leads.
FORMS = {
    "whatis": ("module-whatis {0}", "whatis({0})"),
    "conflict": ("conflict {0}", "conflict({0})"),
    "must-exist": (
        "if {{[module-info mode load] && ![file exists {0}]}} {{\n"
        "    puts stderr {1}\n    break\n}}",
        'if mode() == "load" and not lfs.attributes({0}) then\n  LmodError({1})\nend',
    ),
    "must-be-unset": (
        "if {{[module-info mode load] && [is-set {0}]}} {{\n    puts stderr {1}\n    break\n}}",
        'if mode() == "load" and (os.getenv({0}) or "") ~= "" then\n  LmodError({1})\nend',
    ),
    "advise-if": (
        "if {{[module-info mode load] && [is-set {0}]}} {{\n    puts stderr {1}\n}}",
        'if mode() == "load" and (os.getenv({0}) or "") ~= "" then\n  LmodMessage({1})\nend',
    ),
    "depends-on": ("depends-on {0}", "depends_on({0})"),
    "override": ("override {0} {1}", "pushenv({0}, {1})"),
    "prepend-path": ("prepend-path {0} {1}", "prepend_path({0}, {1})"),
}
HELP = ("proc ModulesHelp {{}} {{\n    puts stderr {0}\n}}", "help({0})")
HEADS = (
    """\
#%Module5.1
# Environment Modules 5.1 or later. Written by GEAR's recipes/build.sh.

# Sets a variable; unloading gives back what the user had. pushenv of Environment Modules 5.2 does
# not: it takes the colon of a value like mlx5_0:1 for its end.
proc override {name value} {
    set kept __GEAR_KEPT_$name
    if {![module-info mode unload]} {
        if {[module-info mode load] && [info exists ::env($name)]} {
            setenv $kept $::env($name)
        }
        setenv $name $value
        return
    }
    # While unloading, setenv unsets, and unsetenv with a value sets.
    if {[info exists ::env($kept)]} {
        unsetenv $name $::env($kept)
        setenv $kept {}
        unset -nocomplain ::env($kept)
    } else {
        setenv $name {}
        # What is loaded instead, as in `module swap`, must not find it set.
        unset -nocomplain ::env($name)
    }
}

proc is-set {name} {
    return [expr {[info exists ::env($name)] && $::env($name) ne {}}]
}
""",
    "-- Lmod. Written by GEAR's recipes/build.sh.",
)
LANGUAGES = {"tcl": 0, "lua": 1}


def quote(text: str, language: str) -> str:
    """One word: every character that means something within quotes is escaped."""
    special = r'[\\"$\[\]{}]' if language == "tcl" else r'[\\"]'
    return '"' + re.sub(special, r"\\\g<0>", text).replace("\n", "\\n") + '"'


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: values[found[1]], text)


def expanded(verb: str, rest: str, values: dict[str, str]) -> Iterator[list[str]]:
    """The words of a line; of one that names a list, those of each of its entries."""
    if rest == "@MODULES@":
        yield from ([module] for module in values["MODULES"].split())
    elif rest == "@ENV@":
        presets = [(found[1], values[key]) for key in values if (found := PRESET.fullmatch(key))]
        yield from map(list, sorted(presets))
    else:
        num_words = 1 + ("{1}" in FORMS[verb][0])
        words = [filled(word, values) for word in rest.split(maxsplit=num_words - 1)]
        if words[-1]:
            yield words


def rendered(source: str, language: str, values: dict[str, str]) -> str:
    """The whole module file."""
    number = LANGUAGES[language]
    parts, help_lines = [], []
    for line in source.splitlines():
        verb, _, rest = line.partition(" ")
        if verb == "help":
            help_lines.append(filled(rest.strip()[2:], values))
        elif verb in FORMS:
            for words in expanded(verb, rest.strip(), values):
                parts.append(FORMS[verb][number].format(*(quote(word, language) for word in words)))
        elif line and not line.startswith("#"):
            raise ValueError(f"no such verb: given {verb!r}, allowed help, {', '.join(FORMS)}")
    text = HELP[number].format(quote("\n".join(help_lines), language))
    return "\n".join([HEADS[number], text, *parts, ""])


def read_values(pairs: list[str], source: str) -> dict[str, str]:
    """The values of NAME=VALUE arguments; ValueError says what is wrong with them."""
    lines = [line for line in source.splitlines() if not line.startswith("#")]
    names = list(dict.fromkeys(re.findall(r"@(\w+)@", "\n".join(lines))))
    presets = "ENV" in names
    if presets:
        names.remove("ENV")
    values = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        preset = presets and PRESET.fullmatch(name)
        if not separator or (name not in names and not preset):
            raise ValueError(f"given {pair!r}, allowed NAME=VALUE, NAME of {names} or ENV.X")
        if not value.isprintable():
            raise ValueError(f"given {pair!r}, allowed printable characters, on one line")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"values are missing: {' '.join(missing)}; give each as NAME=VALUE")
    return values


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default=SOURCE, type=Path, metavar="FILE")
    parser.add_argument("language", choices=LANGUAGES)
    parser.add_argument("--output", required=True, type=Path, metavar="FILE")
    parser.add_argument("values", nargs="+", metavar="NAME=VALUE")
    arguments = parser.parse_args()
    try:
        source = arguments.source.read_text(encoding="utf-8")
    except OSError as error:
        print(f"[modulefiles] the source was not read: {error}", file=sys.stderr)
        return 1
    try:
        values = read_values(arguments.values, source)
    except ValueError as error:
        print(f"[modulefiles] bad value: {error}", file=sys.stderr)
        return 2
    text = rendered(source, arguments.language, values)
    try:
        arguments.output.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"[modulefiles] the module file was not written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
