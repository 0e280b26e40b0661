"""Every command of every document is run: here, or by a script that CI runs, which is named."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from docs.documents import ROOT, commands
from train.saved_data import write_arc, write_cartpole
from warm_python import Warm

import gear

# Commands that need a machine of their own or run this test: where they are run instead.
RUN_ELSEWHERE = {
    r"make test": ("tools/test.sh", "pytest -n"),
    r"make test-all": (".ci/run", "make test-all"),
    r"make setup": ("tools/test.sh", "tools/setup.sh dev"),
    r"make demo": ("tools/check_fresh_machine.sh", "make demo"),
    r"make lint": ("tools/test.sh", "tools/lint.sh"),
    r"make stubs": ("tools/lint.sh", "tools/check_stubs.sh"),
    r"tools/setup\.sh train": ("tools/demo.sh", "tools/setup.sh train"),
    r"tools/native\.sh .*": ("tools/test.sh", "tools/native.sh"),
    r"tests/rdma/run\.sh": ("tests/rdma/test_in_vm.py", "run.sh"),
    r"tools/c10d\.sh": ("tools/test.sh", "tools/c10d.sh"),
    r"mpirun -n 4 python train\.py": ("tests/process_group/launch.py", '"mpirun"'),
    r"python3 -m venv ~/gear-venv": ("tools/check_install.sh", "-m venv"),
    r"~/gear-venv/bin/pip install \.": ("tools/check_install.sh", "wheel --no-deps"),
    r"~/gear-venv/bin/pip install '\.\[cli\]'": ("tools/check_install.sh", "[cli]"),
    r"CMAKE_ARGS=.* ~/gear-venv/bin/pip install \.": (
        "tools/setup.sh",
        "-DGEAR_WITH_CUDA=$cuda -DGEAR_CUDA_ARCHITECTURES=$(cuda_architectures)",
    ),
    r"torchrun .* gear train dist=ddp": ("tests/train/test_ddp.py", 'launching("torchrun", 2)'),
    r"mpirun .* gear train dist=ddp": ("tests/train/test_ddp.py", 'launching("mpirun", 2)'),
    r"deepspeed .* train dist=deepspeed .*": (
        "tests/distribution/test_stack_jobs.py",
        'launching("deepspeed", 2)',
    ),
    r'sbatch "\$GEAR_HOME/slurm/1node\.sbatch" .*': (
        "tests/distribution/test_slurm_templates.py",
        "1node.sbatch",
    ),
    r'sbatch "\$GEAR_HOME/slurm/multinode-srun\.sbatch" .*': (
        "tests/distribution/test_slurm_templates.py",
        "multinode-srun.sbatch",
    ),
    r"python3 recipes/wheelhouse\.py .*": (
        "tests/distribution/test_build_faults.py",
        "wheelhouse.py",
    ),
    # Of INSTALL.md, tests/distribution/test_install_document.py runs the blocks for the module.
    r"recipes/build\.sh recipes/sites/generic-linux\.conf --prefix /opt/gear": (
        "INSTALL.md",
        "recipes/build.sh recipes/sites/generic-linux.conf --prefix",
    ),
    r"module load gear": ("INSTALL.md", "\nmodule load gear\n"),
    r"extend-venv-activate my-venv": ("INSTALL.md", "\nextend-venv-activate ~/my-gear\n"),
    r"recipes/build\.sh .* --uninstall": (
        "tests/distribution/test_build_versions.py",
        "--uninstall",
    ),
    r"\.venv/bin/python -m pytest tests/unit .*": ("tools/test.sh", "-m pytest"),
    r"\.venv/bin/python tools/draw_results\.py": ("tests/docs/test_results.py", "draw_results.py"),
}

# Training runs are cut short; the command is otherwise the one in the document.
SHORT = "total_steps=60 algo.learning_starts=40 checkpoint_every=0"
SHORT_OFFLINE = "total_steps=4 eval_every=2 checkpoint_every=0"
SHORT_PUZZLES = (
    "total_steps=2 eval_every=2 checkpoint_every=0 data.eval_puzzles=1 data.puzzles=8 data.pairs=2 "
    "model.width=16 model.layers=1 algo.batch_size=1"
)

SHOWN = commands()
RUN_HERE = sorted(
    {command for _, command in SHOWN if re.match(r"(\.venv/bin/)?gear |python3 -c ", command)}
)


@pytest.mark.parametrize(("place", "command"), SHOWN, ids=lambda value: str(value))
def test_command_is_run_somewhere(place: str, command: str) -> None:
    if command in RUN_HERE:
        return
    entry = next(
        (e for pattern, e in RUN_ELSEWHERE.items() if re.fullmatch(pattern, command)), None
    )
    assert entry is not None, f"{place}: nothing runs: {command}"
    script, text = entry
    assert text in (ROOT / script).read_text(), f"{place}: {script} does not run: {command}"


def trains(command: str) -> bool:
    words = command.split()
    return "train" in words and "--help" not in words


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=[pytest.mark.slow] if trains(command) else [])
        for command in RUN_HERE
    ],
)
def test_command_runs(command: str, tmp_path: Path) -> None:
    schema = gear.Schema([gear.Column("obs", (3,))])
    with gear.ReplayBuffer(schema, capacity=100) as buffer:
        with buffer.writer() as writer:
            writer.extend(obs=np.zeros((10, 3), np.float32))
        buffer.save(tmp_path / "replay")
    program, *arguments = shlex.split(command)
    if "data=puzzles" in command:
        write_arc(tmp_path / "arc" / "data")
        arguments += SHORT_PUZZLES.split()
    elif "data=saved" in command:
        write_cartpole(tmp_path / "teacher", (30,) * 12)
        arguments += SHORT_OFFLINE.split()
    elif trains(command):
        arguments += SHORT.split()
    if program == "python3":
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        process = Warm("-m", "gear.cli.app", *arguments, cwd=tmp_path, env=os.environ)
        try:
            out, err = process.communicate(timeout=600)
        finally:
            process.kill()
        code = process.returncode
    assert code == 0, f"{command}\n{out[-2000:]}\n{err[-4000:]}"


@pytest.mark.parametrize(
    "target",
    [
        "demo",
        "test",
        "test-all",
        "setup",
        "lint",
        "native",
        "stubs",
        "bench",
        "docs",
        "dist",
        "clean",
    ],
)
def test_make_target_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for script in re.findall(r"\b(?:tools|benchmarks)/[\w./]+", done.stdout):
        assert (ROOT / script).exists(), f"make {target} calls {script}"
