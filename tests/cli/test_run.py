"""`gear run`: which launcher it takes, what it says, and what it ends with."""

from __future__ import annotations

import re
import shlex
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("torch")

import torch

from gear.cli.app import main
from gear_mpi import extension

# Starts the words after its options once a rank, in the way of each launcher, and ends as they do.
STAND_IN = """#!/bin/sh
[ "$1" != --version ] || {{ echo "{says}"; exit 0; }}
while [ "$1" != sh ]; do
  case $1 in -n) size=$2; shift ;; --ntasks=*) size=${{1#*=}} ;; esac
  shift
done
rank=0 code=0
while [ $rank -lt $size ]; do
  env {variable}=$rank "$@" || code={code}
  rank=$((rank + 1))
done
exit $code
"""
# Two words of each rank, and the exit code that it is asked for.
PROGRAM = """
import os
import sys

names = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
rank = next(os.environ[name] for name in names if name in os.environ)
print("rank", rank, *sys.argv[1:])
if f"fail={rank}" in sys.argv:
    sys.exit(int(rank) + 40)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with stand-ins of Open MPI's mpirun and of the extension, and no job of Slurm."""
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_JOB_ID", "GEAR_C10D", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(extension, "FOLDERS", (tmp_path / "c10d",))
    build(tmp_path, "open-mpi-4.1.4")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    put(tmp_path, "mpirun", "OMPI_COMM_WORLD_RANK", "mpirun (Open MPI) 4.1.4")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def put(here: Path, name: str, variable: str, says: str = "", code: int = 1) -> None:
    program = here / "bin" / name
    program.write_text(STAND_IN.format(variable=variable, says=says, code=code))
    program.chmod(0o755)


def build(here: Path, mpi: str, torch_version: str = torch.__version__) -> None:
    folder = here / "c10d" / f"torch-{torch_version}_{mpi}"
    folder.mkdir(parents=True)
    (folder / f"_c10d{sysconfig.get_config_var('EXT_SUFFIX')}").touch()
    (folder / "stamp").touch()


def test_ranks_by_mpirun_have_a_log_each(here, capsys):
    words = ["-n", "3", "--options=--bind-to none", "--logs=logs", "program.py", "-n", "x y"]
    assert main(["run", *words]) == 0
    out, err = capsys.readouterr()
    assert out == "rank 0 -n x y\n"
    said = "by mpirun (Open MPI) 4.1.4 for gear_mpi of open-mpi-4.1.4, which is here"
    assert err.startswith(f"gear run: {said}\n")
    line = next(line for line in err.splitlines() if line.startswith("gear run: mpirun -n 3 "))
    assert "--bind-to none sh " in line
    assert shlex.split(line)[-5:] == [sys.executable, "-u", "program.py", "-n", "x y"]
    for rank in range(3):
        assert (here / "logs" / f"rank-{rank}.log").read_text() == f"rank {rank} -n x y\n"


@pytest.mark.parametrize(
    ("variable", "says", "said"),
    [
        (
            "PMI_RANK",
            "HYDRA build details:\n    Version:      4.0.2",
            "by mpirun (Hydra 4.0.2) for",
        ),
        (
            "OMPI_COMM_WORLD_RANK",
            "mpirun (Open MPI) 5.0.3\n\nReport bugs",
            "by mpirun (Open MPI) 5.0.3 for",
        ),
    ],
)
def test_ranks_by_the_mpirun_of_another_mpi(here, capsys, variable, says, said):
    put(here, "mpirun", variable, says)
    assert main(["run", "-n", "2", "program.py"]) == 0
    assert said in capsys.readouterr().err
    (logs,) = (here / "outputs").iterdir()
    assert sorted(path.name for path in logs.glob("*.log")) == ["rank-0.log", "rank-1.log"]


def test_in_a_job_of_slurm_it_is_srun(here, capsys, monkeypatch):
    """Whose script has a rank of its own, which is none of the step's."""
    put(here, "srun", "SLURM_PROCID", code=42)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PMI_RANK", "5")
    assert main(["run", "-n", "3", "--logs=logs", "program.py", "fail=1", "fail=2"]) == 41
    err = capsys.readouterr().err
    assert "gear run: by srun in job 7 for gear_mpi" in err
    assert "gear run: srun --ntasks=3 --kill-on-bad-exit=1 sh " in err
    assert f"rank 1 ended with exit code 41: {here}/logs/rank-1.log\n    rank 1 fail=1" in err


def test_the_first_rank_that_fails_says_the_exit_code(here, capsys):
    assert main(["run", "-n", "3", "program.py", "fail=2"]) == 42
    assert "gear run: rank 2 ended with exit code 42: " in capsys.readouterr().err


def test_a_launcher_that_fails_by_itself(here, capsys):
    (here / "bin" / "mpirun").write_text("#!/bin/sh\nexit 3\n")
    assert main(["run", "-n", "2", "program.py"]) == 3
    assert "gear run: the launcher ended with exit code 3\n" in capsys.readouterr().err


def test_gloo_is_started_by_torchrun(here, capsys, monkeypatch):
    """A module, which tells how it was started."""
    package = here / "torch" / "distributed"
    package.mkdir(parents=True)
    (here / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "run.py").write_text("import sys; print(*sys.argv[1:]); sys.exit(1)")
    assert main(["run", "-n", "2", "--backend=gloo", "--logs=logs", "-m", "some.module", "-x"]) == 1
    err = capsys.readouterr().err
    assert "gear run: by torchrun for gloo, on this machine alone\n" in err
    line = "-m torch.distributed.run --standalone --nproc-per-node=2 --no-python sh "
    assert line in err
    assert f"rank.sh {here}/logs RANK {sys.executable} -u -m some.module -x\n" in err


def test_torch_is_found_whatever_its_package_is_called(here, capsys, monkeypatch):
    """PyPI's torch 2.13.0 says 2.13.0+cu130 of itself."""
    package = here / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('nobody needs it yet')")
    (package / "version.py").write_text("__version__ = '2.13.0+cu130'\ndebug = False\n")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(here / "site")
    assert extension.torch_version() == "2.13.0+cu130"
    (here / "c10d").rename(here / "built")
    build(here, "open-mpi-5.0.3", "2.13.0+cu130")
    assert main(["run", "-n", "2", "program.py"]) == 0
    assert "for gear_mpi of open-mpi-5.0.3, which is here" in capsys.readouterr().err


def test_without_the_extension_it_is_gloo_and_says_why(here, capsys, monkeypatch):
    monkeypatch.setattr(extension, "FOLDERS", ())
    monkeypatch.setattr("gear.cli.launch.run._follow", lambda line, log: 0)
    assert main(["run", "-n", "2", "program.py"]) == 0
    said = "by torchrun for gloo, on this machine alone, because gear_mpi has not been built for"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--backend=gear_mpi --launcher=srun program.py",
            r"there is no srun on PATH: load the mod",
        ),
        (
            "--backend=gear_mpi --launcher=torchrun program.py",
            r"--launcher torchrun: mpirun and sr",
        ),
        ("--backend=gloo --launcher=mpirun program.py", r"--launcher mpirun: torchrun tells ranks"),
        ("no_such.py", r"SCRIPT no_such\.py: there is no such file: give a Python program, or -m"),
        ("--logs=c10d program.py", r"--logs c10d is there already: give a new or an empty folder"),
    ],
)
def test_what_is_refused(here, capsys, monkeypatch, words, sentence):
    monkeypatch.setenv("PATH", f"{here}/bin")  # no srun of this machine
    assert main(["run", "-n", "2", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith("gear: [run] ")
    assert len(err.splitlines()) == 1
    assert re.search(sentence, err)


def test_gear_mpi_that_is_not_built_is_refused(here, capsys, monkeypatch):
    monkeypatch.setattr(extension, "FOLDERS", ())
    assert main(["run", "-n", "2", "--backend=gear_mpi", "program.py"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gear: [run] gear_mpi has not been built for torch ")
    assert "run tools/c10d.sh" in said


@pytest.mark.slow
@pytest.mark.gear_mpi
def test_the_real_mpirun(tmp_path, capsys, monkeypatch):
    """It ends the rank that waits, and tells the code of the one that failed."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "program.py"
    script.write_text(
        "import os, sys, time\nprint('here', *sys.argv[1:])\n"
        "rank = os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK']\n"
        "while rank == '0' or not os.path.getsize('logs/rank-0.log'):\n    time.sleep(0.05)\n"
        "sys.exit(7)\n"
    )
    as_root = "--allow-run-as-root --oversubscribe --bind-to none"
    words = ["--launcher=mpirun", f"--options={as_root}", "--logs=logs", "program.py", "--x"]
    assert main(["run", "-n", "2", *words]) == 7
    out, err = capsys.readouterr()
    assert out == "here --x\n"
    assert f"gear run: rank 1 ended with exit code 7: {tmp_path}/logs/rank-1.log" in err
