"""The programs of examples/process_group, as users start them, on little data."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from docs.documents import ROOT, documented
from docs.ran import ran
from warm_mpirun import warm_ranks
from warm_python import Warm

from process_group.tests.programs import EXAMPLES, SMALL
from process_group.tests.test_digits import write

pytestmark = [
    pytest.mark.subject("process_group"),
    pytest.mark.gear_mpi,
    pytest.mark.slow,
    pytest.mark.xdist_group("process_group"),
]

BIN = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
# For launchers that a program starts: this machine has few cores, and tests may run as root.
AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMP_NUM_THREADS": "1",
    "PATH": BIN,
}


def alone(
    folder: Path, script: str | Path, *words: str, **environment: str
) -> tuple[int, str, str]:
    """Exit code and outputs of one process that no launcher has started."""
    launchers = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_")
    env = {name: text for name, text in os.environ.items() if not name.startswith(launchers)}
    env |= {"PATH": BIN, **environment}
    process = Warm(str(EXAMPLES / script), *words, cwd=folder, env=env)
    out, err = process.communicate(timeout=300)
    assert process.returncode is not None
    return process.returncode, out, err


def small(command: str) -> list[str]:
    """The words of a command of the document, for few ranks and little data."""
    [name] = re.findall(r"(generic|mnist|imagenet|dlrm)\.(?:py|sh)", command)
    return [*shlex.split(re.sub(r"(?<=[ =])4(?= )", "2", f"{command} ")), *SMALL[name].split()]


@pytest.mark.parametrize("program", SMALL)
def test_alone_a_program_says_how_to_start_several(
    program: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    more = {}
    if program == "imagenet":
        more["PYTHONPATH"] = request.getfixturevalue("torchvision")
    code, out, err = alone(tmp_path, f"{program}.py", *SMALL[program].split(), **more)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == f"{program}: 1 rank of gear_mpi on cpu"
    assert lines[1].startswith(f"{program}: this process is alone; several: mpirun -n 2 python ")
    assert re.search(r"^\w+: loss \S+ at first, \S+ at the end", out, re.M)
    assert re.search(r"^\w+: \S+ \w+/s, all ranks together$", out, re.M)
    assert lines[-1] == f"{program}: all ranks have ended with the same weights"
    assert "Warning" not in err


@pytest.mark.parametrize("program", SMALL)
def test_help_names_the_options_and_starts_nothing(program: str, tmp_path: Path) -> None:
    code, out, _ = alone(tmp_path, f"{program}.py", "--help")
    assert code == 0
    for option in ("--backend", "--steps", "--batch-size", "--below", "--seed"):
        assert option in out
    assert "alone;" not in out


def test_documented_alone(tmp_path: Path) -> None:
    command = documented(r"python examples/process_group/generic\.py")
    words = small(command)
    code, _, err = alone(ROOT, ROOT / words[1], *words[2:])
    assert code == 0, err
    ran(command, shlex.join(words))


def test_documented_by_mpirun_on_files_of_digits(tmp_path: Path) -> None:
    command = documented(r"mpirun -n 4 python examples/process_group/mnist\.py --data FOLDER")
    (tmp_path / "FOLDER").mkdir()
    write(tmp_path / "FOLDER")
    words = [*small(command), "--batch-size=4"]
    script = words.index("examples/process_group/mnist.py")
    with warm_ranks(2, tmp_path, str(ROOT / words[script]), *words[script + 1 :]) as ranks:
        told = [rank.communicate(timeout=300) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], told
    assert "mnist: 2 ranks of gear_mpi on cpu\nmnist: 7 digits to learn and 3 to be" in told[0][0]
    assert "% of the test's digits are told right" in told[0][0]
    assert "alone" not in told[0][0]
    assert told[1][0] == ""
    ran(command, shlex.join(words))


def test_documented_by_torchrun(tmp_path: Path) -> None:
    command = documented(r"torchrun .* examples/process_group/generic\.py --backend=gloo")
    words = small(command)
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **AS_ROOT}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert "generic: 2 ranks of gloo on cpu" in done.stdout
    assert "generic: left out, as this backend has none: all_reduce by AVG" in done.stdout
    ran(command, shlex.join(words))


def test_documented_script(tmp_path: Path) -> None:
    command = documented(r"examples/process_group/run_dlrm\.sh 4")
    script, *words = small(command)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [script, *words], cwd=tmp_path, env={**os.environ, **AS_ROOT}, capture_output=True,
        text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dlrm: 5 tables of 50 rows by 8; ranks hold 3, 2\n" in done.stdout
    assert "dlrm: all ranks have ended with the same weights\n" in done.stdout
    ran(command, shlex.join([script, *words]))


@pytest.mark.parametrize("program", SMALL)
def test_a_script_of_a_program_starts_it(program: str, tmp_path: Path) -> None:
    """With commands that say what they are given, in the place of gear's and Python's."""
    for name in ("gear", "python"):
        (tmp_path / name).write_text('#!/bin/sh\necho "${0##*/} $*"\n')
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"

    def says(*words: str) -> str:
        script = EXAMPLES / f"run_{program}.sh"
        done = subprocess.run(
            [script, *words], env={"PATH": path}, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    file = f"{EXAMPLES}/{program}.py"
    assert says() == f"gear run -n 2 {file}"
    assert says("8", "--steps", "9") == f"gear run -n 8 {file} --steps 9"
    assert says("--backend=gloo") == f"gear run -n 2 --backend=gloo {file} --backend=gloo"
    assert says("--help") == f"python {file} --help"


def test_a_script_says_what_it_lacks() -> None:
    unknown = subprocess.run([EXAMPLES / "run.sh", "other"], capture_output=True, text=True)
    assert unknown.returncode == 2
    assert "run.sh PROGRAM [RANKS] [OPTIONS...]" in unknown.stderr
    without = subprocess.run(
        [EXAMPLES / "run_mnist.sh"], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert without.returncode == 1
    assert "there is no 'gear' on PATH: load GEAR's module" in without.stderr


def test_a_check_that_fails_ends_all_ranks_by_1(tmp_path: Path) -> None:
    words = [str(EXAMPLES / "generic.py"), *SMALL["generic"].split(), "--below=0.001"]
    with warm_ranks(2, tmp_path, *words) as ranks:
        told = [rank.communicate(timeout=300) for rank in ranks]
        assert [rank.returncode for rank in ranks] == [1, 1], told
    assert re.search(r"^generic: FAILED: the loss has fallen to 0\.\d+ of what", told[0][1], re.M)
    assert "FAILED" not in told[1][1]


ONE_TOO_MUCH = f"""
import runpy, sys
import torch.distributed as dist
right = dist.reduce
def wrong(tensor, *more, **words):
    right(tensor, *more, **words)
    tensor[3] += 1
dist.reduce = wrong
sys.path.insert(0, {str(EXAMPLES)!r})
runpy.run_path({str(EXAMPLES / "generic.py")!r}, run_name="__main__")
"""


def test_a_wrong_collective_is_named_with_the_place(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(ONE_TOO_MUCH)
    code, _, err = alone(tmp_path, script, *SMALL["generic"].split())
    assert code == 1
    assert re.search(
        r"FAILED: reduce of torch.float32: element 3 of 37 is \d.0, and \d.0 by the reference", err
    )


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("dlrm", ["--tables=0"], "--tables 0: each of 1 ranks holds one or more"),
        ("dlrm", ["--top-mlp=4-2"], "--top-mlp: its last width is 2"),
        ("mnist", ["--batch-size=0"], "--batch-size 0: 1 ranks share it equally"),
        ("mnist", ["--data=none"], "none has neither train-images-idx3-ubyte nor"),
    ],
)
def test_what_cannot_be_done_is_said(
    program: str, words: list[str], said: str, tmp_path: Path
) -> None:
    code, _, err = alone(tmp_path, f"{program}.py", *words)
    assert code == 1
    assert f"{program}: FAILED: {said}" in err


def test_without_torchvision_the_requirement_is_named(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torchvision'\", name='torchvision')\n"
    )
    code, _, err = alone(tmp_path, "imagenet.py", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert "imagenet: FAILED: there is no torchvision here: pip install torchvision 'torch==" in err


# Weights of other classes, and images of three in a folder each; then a run on both.
FINETUNES = f"""
import os, runpy, sys
import numpy, torch
from PIL import Image
sys.path.insert(0, {str(EXAMPLES)!r})
import imagenet
torch.save(imagenet._torchvision().models.resnet50(num_classes=7).state_dict(), "weights.pt")
for kind in range(3):
    os.makedirs(f"images/{{kind}}")
    for number in range(2):
        pixels = numpy.random.default_rng(number).integers(0, 256, (40, 50, 3), numpy.uint8)
        Image.fromarray(pixels).save(f"images/{{kind}}/{{number}}.png")
runpy.run_path({str(EXAMPLES / "imagenet.py")!r}, run_name="__main__")
"""


def test_weights_and_images_that_are_given_are_taken(torchvision: str, tmp_path: Path) -> None:
    (tmp_path / "finetunes.py").write_text(FINETUNES)
    words = [*SMALL["imagenet"].split(), "--batch-size=3", "--data=images", "--weights=weights.pt"]
    code, out, err = alone(tmp_path, tmp_path / "finetunes.py", *words, PYTHONPATH=torchvision)
    assert code == 0, err
    assert "imagenet: 6 images of 3 classes: images\n" in out
    assert "imagenet: ResNet-50 from weights.pt\n" in out
    np.save(tmp_path / "other.npy", np.zeros(3))
    words[-1] = "--weights=other.npy"
    code, _, err = alone(tmp_path, "imagenet.py", *words, PYTHONPATH=torchvision)
    assert code == 1
    assert "FAILED: --weights other.npy: no state dict of ResNet-50" in err
