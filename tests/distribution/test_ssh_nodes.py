"""docs/nodes.md: `gear train` on two nodes that know each other by ssh alone."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs.documents import commands
from docs.ran import ran
from train.saved_data import write_pendulum

from gear.train.record.checkpoint import checkpoints

if TYPE_CHECKING:
    from distribution.conftest import Installation
    from distribution.ssh_nodes import Nodes

pytest_plugins = ["distribution.ssh_nodes"]
pytestmark = [pytest.mark.subject("trainer"), pytest.mark.ssh, pytest.mark.slow]

# Training as a test can afford it.
SHORT = (
    "device=cpu total_steps=600 algo.learning_starts=400 algo.batch_size=32 model.hidden=[32] "
    "logger=csv"
)
SHORT_OFFLINE = (
    "device=cpu total_steps=4 eval_every=0 checkpoint_every=0 logger=csv model.width=16 "
    "model.layers=1 model.heads=2 algo.context=4 replay.page_steps=16 hydra.run.dir=run"
)
NO_END = (
    "data=saved data.path=replay hydra.run.dir=run device=cpu total_steps=10000000 eval_every=0 "
    "logger=csv model.width=16 model.layers=1 model.heads=2 algo.context=4 algo.warmup=0 "
    "replay.page_steps=16 checkpoint_every=200 dist.timeout_s=3600"
)


def command_of_page(start: str, part: str = "") -> str:
    [found] = {
        each.text
        for each in commands()
        if each.place == "ssh" and each.text.startswith(start) and part in each.text
    }
    return found


@pytest.fixture
def user(nodes: Nodes) -> Nodes:
    """With these tests' own Python."""
    return replace(nodes, path=str(Path(sys.executable).parent))


def test_the_nodes_are_apart(nodes: Nodes) -> None:
    """What tests below show would mean nothing else."""
    said = nodes.run("hostname; ssh node2 hostname; ssh node2 pwd; ssh node2 'echo $LC_ALL.'")
    assert said.split() == ["node1", "node2", "/root", "."]
    addresses = nodes.run("getent hosts node2; ssh node2 getent hosts node1")
    assert "127." not in addresses
    assert nodes.run("touch /dev/shm/mine; ssh node2 ls /dev/shm; rm /dev/shm/mine") == ""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("start", "part", "ranks", "launcher"),
    [
        pytest.param("mpirun", "", 4, "mpirun", id="mpirun"),
        pytest.param("pdsh", "torchrun", 4, "torchrun", id="torchrun"),
        pytest.param("pdsh", "dist.master_addr", 2, "environment", id="by-hand"),
    ],
)
def test_training_ends_well(user: Nodes, start: str, part: str, ranks: int, launcher: str) -> None:
    shown = command_of_page(start, part)
    command = f"{shown} {SHORT}"
    said = re.sub(r"[\s│┃]+|node\d: ", " ", user.run(command, OMP_NUM_THREADS="1"))
    assert f"ranks {ranks}, started by {launcher}" in said, said
    assert f"nodes 2, ranks on each: {ranks // 2} " in said, said
    [summary] = user.home.glob("outputs/pendulum-sac-seed*/*/summary.json")
    found = json.loads(summary.read_text())
    assert (found["env_steps"], found["updates"]) == (600, 200 // ranks + 1)
    ran(shown, command)


@pytest.mark.modules
def test_deepspeed_starts_ranks_by_pdsh(nodes: Nodes, installation: Installation) -> None:
    """The launcher and the pdsh that a user has: of the module, and of Debian."""
    write_pendulum(nodes.home / "RUN_DIR", (30, 12, 5, 9, 40, 17, 25, 20, 14))
    (nodes.home / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    shown = command_of_page("deepspeed")
    command = f"{shown} {SHORT_OFFLINE}"
    load = (
        "source /usr/share/modules/init/bash; "
        f"module use {installation.modulefiles}; module load {installation.name}; "
    )
    said = nodes.run(load + command, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    said = re.sub(r"[\s│┃]+|node\d: ", " ", said)
    assert "ranks 4, started by environment" in said, said
    assert "nodes 2, ranks on each: 2 " in said, said
    assert json.loads((nodes.home / "run/summary.json").read_text())["updates"] == 4
    ran(shown, command)


def test_a_killed_rank_is_named_with_its_node(user: Nodes) -> None:
    """The time-out is an hour, and nobody waits for that."""
    write_pendulum(user.home / "replay")
    ranks = [
        user.start(
            f"exec gear train dist=ddp rank={rank} world_size=2 dist.master_addr=node1 {NO_END}",
            node=f"node{rank + 1}",
            OMP_NUM_THREADS="1",
        )
        for rank in range(2)
    ]
    try:
        while not checkpoints(user.home / "run"):
            assert [rank.poll() for rank in ranks] == [None, None], ranks[0].communicate()
            time.sleep(0.05)
        ranks[1].kill()
        said, _ = ranks[0].communicate(timeout=240)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert ranks[0].returncode == 2, said
    who = rf"rank 1 \(pid {ranks[1].pid} on node2\)"
    assert re.search(rf"^gear: \[transport\] {who} ", said, re.MULTILINE), said
