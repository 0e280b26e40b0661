"""Prints what `pip install '.[EXTRAS]'` would install beside GEAR, one requirement a line.

python tools/dependencies.py train,dev

So that these can be installed before GEAR is built; pip has no such option. Extras that name others
of this project (`gear[cli]`) are followed.
"""

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def requirements(project: dict, extras: list[str]) -> list[str]:
    """Those of the project and of its extras, each once, in the order in which they stand."""
    of_its_own = re.compile(rf"{re.escape(project['name'])}\[(?P<extras>[^]]*)\]$")
    found: dict[str, None] = dict.fromkeys(project["dependencies"])
    for extra in extras:
        for line in project["optional-dependencies"][extra]:
            if own := of_its_own.match(line.replace(" ", "")):
                found.update(dict.fromkeys(requirements(project, own["extras"].split(","))))
            else:
                found[line] = None
    return list(found)


if __name__ == "__main__":
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    wanted = [extra for extra in sys.argv[1].split(",") if extra]
    print("\n".join(requirements(tomllib.loads(text)["project"], wanted)))
