"""INSTALL's packages of Debian are those that the tests run with."""

from __future__ import annotations

import re

from docs.documents import ROOT

TABLE = (ROOT / "INSTALL.md").read_text(encoding="utf-8").split("| | see it |")[1].split("\n\n")[0]
SCRIPT = (ROOT / "tools" / "debian_packages.sh").read_text(encoding="utf-8")
LISTS = re.findall(r'unless "[^"]*" (?:\\\n *)?"([^"]*)"|modules=(\S+)$', SCRIPT, re.M)
INSTALLED = {name for pair in LISTS for packages in pair for name in packages.split()}


def test_each_package_of_debian_is_one_that_is_installed_for_the_tests() -> None:
    columns = [line.split(" | ")[2] for line in TABLE.splitlines()[2:]]
    found = [each for each in columns if "(NVIDIA's)" not in each]
    assert len(found) > 5
    for packages in found:
        for name in packages.strip("`").split():
            assert name in INSTALLED, name
