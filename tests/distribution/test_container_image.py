"""The image that recipes/containers/Dockerfile makes, target cpu, on a base made by debootstrap.

It takes a quarter of an hour, half of it to compile what is not in the cache.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest
from docs.documents import documented
from docs.ran import ran

from distribution.podman import (
    BASE,
    BUILD,
    configuration,
    make_base,
    make_context,
    packages,
    podman,
    run_in,
)
from distribution.project import NAME

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.podman, pytest.mark.timeout(5400)]

LEAST_RETURN = -300  # Pendulum: random play has -1200, what has learned -150


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    make_context()
    make_base()
    command = documented(r"podman build .*")
    _, _, *words = shlex.split(command)
    options = [*BUILD, "--build-arg", f"CPU_BASE={BASE}", *packages()]
    said = podman("build", *options, *words)
    assert f"build: gear/{NAME} is installed: " in said
    ran(command, shlex.join(["podman", "build", *options, *words]))
    yield "localhost/gear"
    podman("image", "prune", "--force")
    podman("rmi", "--force", "localhost/gear")


def test_what_it_says_of_itself(image: str) -> None:
    whole = configuration(image)
    about = whole["Config"]
    assert (about["User"], about["WorkingDir"]) == ("10001:10001", "/runs")
    assert (about["Entrypoint"], about["Cmd"]) == (["with-gear"], ["bash"])
    assert whole["Healthcheck"]["Test"] == ["CMD", "with-gear", "gear", "check"]


def test_everything_is_there_for_its_user(image: str) -> None:
    said = run_in(image, "bash", "-c", "id -u; echo $HOME; pwd; gear check && gear check --build")
    assert "\n10001\n/home/gear\n/runs\n" in said
    assert f"in /opt/gear/gear/{NAME}\n" in said
    for part in ("GEAR core", "PyTorch", "Horovod", "DeepSpeed", "mpi4py", "gear_mpi for torch"):
        assert re.search(rf"\[X\] {part}", said), said
    assert "[!]" not in said


def test_what_makes_it_is_not_in_it(image: str) -> None:
    left = "/source /usr/bin/g++ /root/.cache/pip /var/lib/apt/lists"
    seen = f"for it in {left}; do [ ! -e $it ] || echo IS $it; done"
    secret = "[ ! -s /etc/pip.conf ] || echo IS a secret"
    closed = "touch /opt/gear/mine 2>/dev/null && echo IS open"
    said = run_in(image, "bash", "-c", f"{seen}; {secret}; {closed}; echo looked")
    assert "\nlooked\n" in said
    assert re.findall(r"^IS .*", said, re.M) == []


def test_ranks_meet_in_it(image: str) -> None:
    start = "mpirun --oversubscribe -n 2 python $GEAR_HOME/share/gear/smoke"
    said = run_in(image, "bash", "-ec", f"{start}/check_horovod.py; {start}/check_gear_mpi.py")
    assert "Horovod on cpu: 2 ranks agree" in said
    assert re.search(r"gear_mpi, torch-\S+: 2 ranks agree", said)


def test_the_training_of_make_demo_learns(image: str) -> None:
    said = run_in(
        image, "bash", "-ec", "gear train; echo; cat outputs/*/*/summary.json | tr -d '\\n'; echo"
    )
    found = json.loads(re.findall(r"^\{.*\}$", said, re.M)[-1])
    assert found["final_return"] >= LEAST_RETURN
    assert found["eval_return"] >= LEAST_RETURN
