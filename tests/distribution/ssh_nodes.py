"""The fixture `nodes`: two virtual nodes that reach each other by ssh, and no scheduler.

Test modules take it with `pytest_plugins = ["distribution.ssh_nodes"]` and the marker `ssh`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "tests" / "nodes" / "ssh.sh"
BARE_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Nodes:
    """A user at node1, in the folder `home`, which both nodes see; `path` comes before PATH."""

    place: str
    home: Path
    path: str = ""

    def start(self, line: str, node: str = "node1", **variables: str) -> subprocess.Popen[str]:
        """A line of bash in a bare environment; what it writes is one stream."""
        bare = {
            "HOME": str(self.home),
            "PATH": f"{self.path}:{BARE_PATH}" if self.path else BARE_PATH,
            "LC_ALL": "C.UTF-8",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return subprocess.Popen(
            [SCRIPT, "on", node, "bash", "-c", line],
            env={**bare, "PLACE": self.place, **variables},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, line: str, timeout_s: float = 300, **variables: str) -> str:
        """What a line printed that ended well."""
        process = self.start(line, **variables)
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"{line}\nstill runs after {timeout_s} s:\n{process.communicate()[0]}")
        assert process.returncode == 0, f"{line}\n{said}"
        return said


@pytest.fixture(scope="session")
def place() -> Iterator[str]:
    """Two nodes of this process of pytest-xdist, which end with it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    own = str(int(re.sub(r"\D", "", worker)) % 10)
    environment = {**os.environ, "PLACE": own}
    done = subprocess.run(
        [SCRIPT, "up"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    yield own
    subprocess.run([SCRIPT, "down"], env=environment, check=True)


@pytest.fixture
def nodes(place: str, tmp_path: Path) -> Nodes:
    home = tmp_path / "home"
    home.mkdir()
    return Nodes(place, home)
