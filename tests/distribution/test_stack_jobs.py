"""What a user runs after `module load gear`, and nothing else: Horovod, DeepSpeed, mpi4py."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from docs.documents import launching
from docs.ran import ran
from ports import fresh_port
from train.saved_data import write_pendulum

from distribution.in_module import after_load, in_module

pytestmark = pytest.mark.modules
TINY = (
    *("total_steps=3", "eval_every=0", "logger=csv", "replay.page_steps=16"),
    *("model.width=16", "model.layers=1", "model.heads=2", "algo.context=4"),
)
RANKS = "mpirun --oversubscribe --bind-to none -n 2"


def test_everything_imports_in_one_python(installation):
    """horovod.torch last: it has to get along with what is loaded by then."""
    said = after_load(
        installation,
        'python -c "import gear, torch, mpi4py.MPI, deepspeed, horovod.torch, hydra, wandb, '
        'torchmetrics, torch.utils.tensorboard, torch_tb_profiler; print(torch.__version__)"',
    )
    assert said.splitlines()[-1].startswith("2.13.0")


def test_packages_agree(installation):
    assert "No broken requirements found" in after_load(installation, "python -m pip check")


def test_horovod_adds_up_over_two_ranks(installation):
    said = after_load(installation, f"{RANKS} python $GEAR_HOME/share/gear/smoke/check_horovod.py")
    assert "Horovod on cpu: 2 ranks agree on 3" in said


def test_horovodrun_starts_ranks_through_mpi(installation):
    program = "$GEAR_HOME/share/gear/smoke/check_horovod.py"
    said = after_load(installation, f"horovodrun --mpi -np 2 python {program}")
    assert "2 ranks agree on 3" in said


def test_horovod_is_built_for_mpi_without_gloo(installation):
    said = after_load(installation, "horovodrun --check-build")
    marks = {name: mark for mark, name in re.findall(r"\[(.)\] (\w+)", said)}
    assert (marks["PyTorch"], marks["MPI"], marks["Gloo"]) == ("X", "X", " "), said


def test_elastic_mode_is_refused(installation):
    """CVE-2024-10190: the server that unpickles what anybody sends is not there."""
    done = in_module(installation, "horovodrun -np 2 --min-np 1 -H localhost:2 true")
    assert done.returncode == 1
    assert "elastic mode is not part of this installation (CVE-2024-10190)" in done.stderr
    code = "from horovod.runner.elastic.rendezvous import *; create_rendezvous_handler(None)"
    done = in_module(installation, f'python -c "{code}"')
    assert "elastic mode is not part of this installation" in done.stderr
    folder = next(installation.base.glob("lib/python3.*/site-packages/horovod/runner/elastic"))
    assert "loads_base64" not in (folder / "rendezvous.py").read_text()


def test_command_of_the_guide_trains_by_deepspeed_and_compiles_nothing(installation, tmp_path):
    """The launcher hands each rank --local_rank, before the words of the command."""
    write_pendulum(tmp_path / "RUN_DIR")
    port = fresh_port()
    shown, (program, *words) = launching("deepspeed", 2)
    command = shlex.join([program, f"--master_port={port}", *words, *TINY, "hydra.run.dir=run"])
    after_load(
        installation,
        f"cd {shlex.quote(str(tmp_path))}",
        command,
        env={"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")},
    )
    ran(shown, command)
    assert json.loads((tmp_path / "run/summary.json").read_text())["updates"] == 3
    assert (tmp_path / "run/checkpoints/step_3/trainer-00001-of-00002.pt").exists()
    assert not (tmp_path / "extensions").exists()
    assert not list(Path("/dev/shm").glob(f"deepspeed_*_{port}_*"))


def test_what_deepspeed_needs_on_cpus_is_compiled_already(installation):
    said = after_load(
        installation,
        'python -c "from deepspeed.accelerator import get_accelerator as g; '
        "print(g().create_op_builder('ShareMemCommBuilder').load().__file__)\"",
        env={"DS_ACCELERATOR": "cpu"},
    )
    assert Path(said.splitlines()[-1]).is_relative_to(installation.base)


def test_deepspeed_compiles_in_a_job_only_when_asked(installation, tmp_path):
    load = (
        'python -c "from deepspeed.accelerator import get_accelerator as g; '
        "g().create_op_builder('CPUAdagradBuilder').load()\""
    )
    env = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")}
    done = in_module(installation, load, env=env)
    assert done.returncode == 1
    assert "the op cpu_adagrad is not compiled in this installation" in done.stderr
    assert "GEAR_DEEPSPEED_JIT=1" in done.stderr
    assert not (tmp_path / "extensions").exists()
    # Asked for, it goes as far as to call the compiler.
    asked = env | {"GEAR_DEEPSPEED_JIT": "1", "CXX": "/no/compiler"}
    done = in_module(installation, load, env=asked)
    assert done.returncode == 1
    assert "/no/compiler" in done.stdout + done.stderr


def test_ranks_of_mpi4py_exchange_experience(installation):
    said = after_load(installation, f"{RANKS} python $GEAR_HOME/share/gear/smoke/check_mpi4py.py")
    assert "2 ranks exchanged experience" in said
    assert "transport mpi" in said


def test_mpi4py_belongs_to_the_mpi_of_the_site(installation):
    """Not the wheel of PyPI, which carries several and picks what it finds."""
    folder = next(installation.base.glob("lib/python3.*/site-packages/mpi4py"))
    assert [path.name.split(".")[0] for path in folder.glob("MPI.*.so")] == ["MPI"]
    assert not list(folder.glob("MPI.mpich*")) + list(folder.glob("MPI.openmpi*"))


def test_horovod_finds_torch_from_where_it_lies(installation):
    """Its wheel is kept and used by later builds, in other folders."""
    library = next(installation.base.glob("lib/python3.*/site-packages/horovod/torch/mpi_lib*.so"))
    content = library.read_bytes()
    assert b"$ORIGIN/../../torch/lib" in content
    runpath = re.search(rb"\$ORIGIN/\.\./\.\./torch/lib[^\0]*", content)
    assert runpath is not None
    assert b"site-packages" not in runpath[0]
