"""The smoke test: what it fails on, with stand-ins for what it tries."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from distribution.recipe_part import REPOSITORY, fake_python, run_part

PROGRAMS = REPOSITORY / "recipes" / "smoke"

# Two ranks of one machine that agree about everything; rank 0 is the one that looks.
HOROVOD = """
import torch

torch.cuda.device_count = lambda: {gpus}
Sum = None
init = shutdown = lambda: None
nccl_built = lambda: {nccl}
size = local_size = lambda: 2
rank = local_rank = lambda: 0


def allreduce(tensor, op):
    return 3 * tensor


def DistributedOptimizer(optimizer, named_parameters):
    return optimizer


def broadcast_parameters(parameters, root_rank):
    pass


def allgather(tensor):
    return torch.cat([tensor, tensor])
"""


def smoke(
    folder: Path, gear: str, kind: str = "cpu", python: str = "exit 0", **site: str
) -> subprocess.CompletedProcess[str]:
    """The step in a build whose programs are stand-ins; `gear` and `python` are what those do."""
    fake_python(folder / "build", python)
    command = folder / "build" / "bin" / "gear"
    command.write_text(f"#!/bin/sh\n{gear}\n")
    command.chmod(0o755)
    values = {"torch": "off", "mpi4py": "off", "horovod": "on", "deepspeed": "off", "mpirun": "off"}
    return run_part("steps/smoke.sh", "smoke_step", folder, site=values | site, kind=kind)


def test_without_ranks_what_does_not_import_is_no_success(tmp_path):
    broken = 'echo "[!] Horovod 0.28.1 does not import  ImportError: no MPI"; exit 1'
    done = smoke(tmp_path, f'[ "$*" = "check --build" ] || exit 0; {broken}')
    assert done.returncode == 1, done.stdout
    assert "the smoke test of packages failed" in done.stderr
    assert "Horovod 0.28.1 does not import  ImportError: no MPI" in done.stderr


def test_without_ranks_what_imports_will_do(tmp_path):
    done = smoke(tmp_path, "exit 0")
    assert done.returncode == 0, done.stderr
    assert "ranks are not started here" in done.stdout


def test_shared_memory_that_stays_is_no_success(tmp_path):
    """And it is removed: no run may find it."""
    launcher = tmp_path / "build" / "bin" / "deepspeed"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(
        "#!/bin/sh\nwhile [ $# -gt 2 ]; do [ $1 = --master_port ] && port=$2; shift; done\n"
        "touch /dev/shm/deepspeed_allreduce_buffer_0_127.0.0.1_${port}_0\n"
    )
    launcher.chmod(0o755)
    done = smoke(tmp_path, "exit 0", horovod="off", deepspeed="on")
    assert done.returncode == 1
    said = re.search(r"DeepSpeed has left shared memory behind: (\S+)", done.stderr)
    assert said is not None, done.stderr
    assert not Path(said[1]).exists()


@pytest.mark.parametrize(
    ("kind", "gpus", "told"),
    [
        ("cpu", "0,1", "cpu --num_accelerators 2"),
        ("gpu", "", "cpu --num_accelerators 2"),
        ("gpu", "3", "cuda --include localhost:3"),
        ("gpu", "0,1", "cuda --include localhost:0,1"),
    ],
)
def test_deepspeed_is_tried_on_the_gpus_that_can_be_used(tmp_path, kind, gpus, told):
    launcher = tmp_path / "build" / "bin" / "deepspeed"
    launcher.parent.mkdir(parents=True)
    launcher.write_text('#!/bin/sh\necho "warning: $DS_ACCELERATOR $1 $2"\n')
    launcher.chmod(0o755)
    done = smoke(tmp_path, "exit 0", kind, f"echo {gpus}", horovod="off", deepspeed="on")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"build:   warning: {told}\n"


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("capabilities", "visible", "architectures", "found"),
    [
        ([], None, "90", []),
        ([(9, 0)], None, "80;90", ["0"]),
        ([(9, 0)] * 4, None, "90a", ["0", "1"]),
        ([(7, 5)], None, "80;90", []),
        ([(8, 9)], None, "86", ["0"]),
        ([(8, 0)], None, "86", []),
        ([(7, 5), (9, 0)], None, "90", ["1"]),
        ([(9, 0)] * 2, "2,3", "90", ["2", "3"]),
        ([(9, 0)], "GPU-6f3a", "90", []),
        ([(9, 0)], "MIG-1,MIG-2", "90", []),
    ],
)
def test_gpus_that_can_be_used(monkeypatch, capabilities, visible, architectures, found):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    main = runpy.run_path(str(PROGRAMS / "usable_gpus.py"))["main"]
    assert main([int(each.rstrip("af")) for each in architectures.split(";")]) == found


def test_what_a_check_warns_of_is_shown(tmp_path):
    """Once: the log of the step still has it when the next check has ended."""
    launcher = tmp_path / "build" / "bin" / "deepspeed"
    launcher.parent.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    command = 'echo "warning: not tried"; echo "no warning: tried"'
    said = f'[ "$*" != "check --build" ] || {{ {command}; }}'
    done = smoke(tmp_path, said, horovod="off", deepspeed="on")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "build:   warning: not tried\n"


def check_horovod(folder: Path, *, gpus: int, nccl: bool) -> str:
    """What it prints, with a stand-in for Horovod."""
    package = folder / "horovod"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "torch.py").write_text(HOROVOD.format(gpus=gpus, nccl=nccl))
    paths = [str(folder), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, PROGRAMS / "check_horovod.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stderr
    assert "Horovod on cpu: 2 ranks agree on 3" in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.parametrize("gpus", [0, 1])
def test_ranks_of_horovod_with_too_few_gpus_take_the_cpu_and_warn(tmp_path, gpus):
    said = check_horovod(tmp_path, gpus=gpus, nccl=True)
    assert said.splitlines()[1] == (
        f"warning: Horovod's NCCL was not tried: this node has {gpus} GPU(s) for 2 ranks. On "
        "one with a GPU for each rank, run: mpirun -n 2 python "
        "$GEAR_HOME/share/gear/smoke/check_horovod.py"
    )


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_horovod_for_the_cpu_warns_of_nothing(tmp_path):
    assert "warning" not in check_horovod(tmp_path, gpus=1, nccl=False)


def check_torch(monkeypatch, cuda: str, compiled: str, *arguments: str) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "get_arch_list", compiled.split)
    monkeypatch.setattr(sys, "argv", ["check_torch.py", "gpu", *arguments])
    runpy.run_path(str(PROGRAMS / "check_torch.py"))


# PyTorch's builds for CUDA 12 and 13: what they list of themselves.
CUDA12 = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
CUDA13 = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"


@pytest.mark.parametrize(
    ("cuda", "compiled", "nvcc", "architectures"),
    [
        ("12.6", CUDA12, "12.4.131", "70"),
        ("13.0", CUDA13, "13.2.0", "75;80;86;89;90;100;120"),
        ("13.0", CUDA13, "13.0.48", "90a;121"),  # code of the generation, PTX of one before
        ("12.4", "", "12.4.131", "70"),  # not known where there is no GPU
    ],
)
def test_a_torch_that_fits(monkeypatch, capsys, cuda, compiled, nvcc, architectures):
    check_torch(monkeypatch, cuda, compiled, nvcc, architectures)
    assert f"CUDA {cuda}: a gradient on " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cuda", "compiled", "nvcc", "architectures", "sentence"),
    [
        ("13.0", CUDA13, "12.4.131", "80", "is built with CUDA 13.0, and cuda_home has CUDA 12.4"),
        ("13.0", CUDA13, "13.0.48", "60;70;80", "has no code for 60, 70 of cuda_architectures"),
        ("12.6", CUDA12, "12.6.20", "90;100", "has no code for 100 of cuda_architectures"),
        ("12.6", "sm_80 sm_90a", "12.6.20", "90", "has no code for 90 of cuda_architectures"),
    ],
)
def test_a_torch_that_does_not_fit(monkeypatch, cuda, compiled, nvcc, architectures, sentence):
    with pytest.raises(SystemExit) as ended:
        check_torch(monkeypatch, cuda, compiled, nvcc, architectures)
    assert sentence in str(ended.value)


@pytest.mark.parametrize("tool", ["make", "patch"])
def test_a_tool_that_horovod_needs_is_looked_for_before_anything_is_built(tmp_path, tool):
    site = {"torch": "2.13.0", "horovod": "on", "deepspeed": "off"}
    absent = f'command() {{ [ "$2" != {tool} ]; }}\ncheck_tools'
    done = run_part("steps/preflight.sh", absent, tmp_path, site=site)
    assert done.returncode == 1
    assert f"there is no command '{tool}'" in done.stderr
    assert f"(Debian: {tool})" in done.stderr


def test_no_tool_is_looked_for_where_nothing_needs_it(tmp_path):
    site = {"torch": "off", "horovod": "off", "deepspeed": "off"}
    done = run_part("steps/preflight.sh", "command() { false; }\ncheck_tools", tmp_path, site=site)
    assert done.returncode == 0, done.stderr
