"""What recipes/diagnose.sh reads out of a log, and what it advises."""

from __future__ import annotations

from pathlib import Path

import pytest

from distribution.recipe_part import run_part

TORCHRUN = "+ torchrun smoke.py\nsocket.gaierror: [Errno -3] Temporary failure in name resolution"
PIP = f"{TORCHRUN}\nNewConnectionError: Max retries exceeded with url: /simple/torch/"


def diagnosed(folder: Path, log: str, *, named: bool) -> str:
    (folder / "a.log").write_text(log + "\n")
    script = f"getent() {{ {str(named).lower()}; }}; hostname() {{ echo node7; }}; diagnose a.log"
    done = run_part("diagnose.sh", script, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("log", "named"), [(TORCHRUN, True), (PIP, True), (PIP, False)])
def test_a_server_without_an_address_is_the_networks_fault(
    tmp_path: Path, log: str, named: bool
) -> None:
    assert diagnosed(tmp_path, log, named=named).startswith("the network does not answer\t")


def test_a_machine_whose_own_name_has_no_address_is_told_so(tmp_path: Path) -> None:
    said = diagnosed(tmp_path, TORCHRUN, named=False)
    assert said.startswith("this machine's own name, node7, has no address\tgive it one in /etc/")
