"""`gear train` on emulated ranks: the real ones share replay, and gradients are of all."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("hydra")

from docs.documents import documented
from docs.ran import ran
from train.composed import compose

import gear.emu as emu
from gear.errors import InvalidArgument
from gear.train.config import read_place
from gear.train.ranks.meeting import start_ranks
from gear.train.record.checkpoint import find

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("library")]
GEAR = Path(sys.executable).with_name("gear")
SHORT = ["algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[4]", "total_steps=80"]
CARTPOLE = ["env=cartpole", *SHORT, "eval_every=0"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def run(words: list[object], folder: Path, scripts: Path = GEAR.parent) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{scripts}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def networks(folder: Path, ranks: int) -> str:
    """A digest of the networks of the last checkpoint."""
    found = {find(folder).state(rank, ranks)["networks"] for rank in range(ranks)}
    (digest,) = found
    return digest


def test_one_real_rank_of_512_learns_what_one_alone_does(tmp_path: Path, warm: Path) -> None:
    """Equal gradients: the sum of a power of two, divided by it, is each of them to the bit."""
    command = documented(r"gear emu run -N 512 .* gear train .*dist=ddp.*")
    words = [*shlex.split(command), *SHORT, "eval_every=0"]
    said = run([GEAR, *words[1:], "hydra.run.dir=a"], tmp_path)
    ran(command, shlex.join(words))
    run([warm / "gear", "train", *CARTPOLE, "hydra.run.dir=b"], tmp_path)
    assert networks(tmp_path / "a", 1) == networks(tmp_path / "b", 1)
    assert "0 of 512; gradients are averaged over all" in said
    assert "gradients averaged by gear_emu" in said
    assert "means nothing" not in said


def test_what_if_and_how_true_is_it(tmp_path: Path, warm: Path) -> None:
    """A run of real ranks, which no model holds, is of the same program as an emulated one."""
    patterns = ["whatif", "run .*--model none", "run -N 2 --out", "compare", "trace"]
    said = []
    for pattern in patterns:
        command = documented(rf"gear emu {pattern}.*")
        cut = shlex.join([*SHORT, "eval_every=0"]) if "train" in command else ""
        said.append(run(["bash", "-euc", f"{command} {cut}"], tmp_path, warm))
        ran(command, f"{command} {cut}")
    table = [line.split() for line in said[0].splitlines()[-3:]]
    assert [line[0] for line in table] == ["nic.gb_per_s", "12.5", "50"]
    assert [float(line[1]) > 0 for line in table[1:]] == [True, True]
    assert "rank 0: step " in said[3]
    assert "  all_reduce " in said[3]
    assert "traceEvents" in (tmp_path / "trace.json").read_text()


@pytest.mark.nightly
def test_two_real_ranks_of_eight_learn_what_two_do(tmp_path: Path) -> None:
    train = [GEAR, "train", *CARTPOLE, "dist=ddp"]
    words = ["-N", 8, "--real", "0,1", "--"]
    run([GEAR, "emu", "run", *words, *train, "hydra.run.dir=a"], tmp_path)
    run([*TORCHRUN, "--no-python", *train, "hydra.run.dir=b"], tmp_path)
    assert networks(tmp_path / "a", 2) == networks(tmp_path / "b", 2)


@pytest.mark.nightly
def test_a_loss_of_shards_is_marked_where_it_stands(tmp_path: Path) -> None:
    run([GEAR, "data", "collect", "env=cartpole", "policy=random", "steps=200", "out=d"], tmp_path)
    model = ["model.width=16", "model.heads=2", "model.layers=2"]
    train = [GEAR, "train", "algo=dt", "env=cartpole", "data=saved", "data.path=d", "dist=fsdp2"]
    words = [*model, "algo.batch_size=4", "total_steps=6", "hydra.run.dir=a"]
    said = run([GEAR, "emu", "run", "-N", 64, "--real", "0,8", "--", *train, *words], tmp_path)
    (line,) = [line for line in said.splitlines() if line.startswith("step 6/6 ")]
    assert "(means nothing: emulated shards)" in line
    assert said.count("LOSSES MEAN NOTHING: DTensor has split the parameters") == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "dist=single"),
        (["dist=deepspeed"], "dist=deepspeed"),
        (["dist=horovod"], "dist=horovod"),
        (["dist=ddp", "rank=0", "world_size=2"], "rank= and world_size="),
    ],
)
def test_what_an_emulated_job_cannot_have(words, named, tmp_path, monkeypatch) -> None:
    emu.Job(8).save(tmp_path / "job.toml")
    monkeypatch.setenv("GEAR_EMU", str(tmp_path / "job.toml"))
    monkeypatch.setattr("gear.emu.present._installed", None)
    with pytest.raises(InvalidArgument, match=rf"{named} in an emulated job of 8 ranks: dist=ddp "):
        start_ranks(read_place(compose(*words)))
