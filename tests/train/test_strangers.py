"""Of a file that may be a stranger's the network is used: it imports nothing, reads nothing of the
user's, and writes nowhere but where the command says."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from pathlib import Path

import gymnasium
import pytest
import torch
import yaml
from train.saved_data import write_cartpole

import gear
from gear.cli.app import main as command
from gear.train.app import main
from gear.train.config import written
from gear.train.models.exported import NETWORKS, load_policy
from gear.train.record.checkpoint import find
from gear.train.tasks.known import is_known

SHORT = (
    *("env=cartpole", "algo.learning_starts=20", "algo.batch_size=8", "model.hidden=[8]"),
    *("eval_every=0", "logger=csv", "total_steps=40", "hydra.run.dir=run"),
)
# What the stranger would have the user import; it leaves a mark when it is imported.
MODULE = """
from pathlib import Path

Path("imported").touch()
import gymnasium
from gear.train.tasks.hunt import parallel_env

gymnasium.register("Theirs-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv")
"""
PETTINGZOO = {"api": "pettingzoo", "id": "theirs"}
GYMNASIUM = {"id": "theirs:Theirs-v0"}
PATHS = {"kwargs": {"xml_file": "/etc/passwd"}}


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch unpickled",)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of 40 steps, which no test changes."""
    folder = tmp_path_factory.mktemp("trained")
    assert main([*SHORT[:-1], f"hydra.run.dir={folder / 'run'}"]) == 0
    return folder / "run"


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of it; the stranger's module lies where Python looks first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SECRET", "of-the-user")
    shutil.copytree(trained, "run")
    Path("theirs.py").write_text(MODULE)
    yield Path("run")
    assert not Path("unpickled").exists()
    sys.modules.pop("theirs", None)
    gymnasium.registry.pop("Theirs-v0", None)


def config_of(run: Path, changes: dict) -> str:
    values = yaml.safe_load((run / "config.yaml").read_text())
    for key, value in changes.items():
        group, _, name = key.rpartition(".")
        place = values[group] if group else values
        place[name] = {**place[name], **value} if isinstance(value, dict) else value
    return yaml.safe_dump(values)


def spoil_checkpoint(run: Path, **changes) -> Path:
    """Its last checkpoint, with another configuration."""
    path = find(run).path
    (path / "config.yaml").write_text(config_of(run, changes))
    return path


def spoil_policy(run: Path, **parts) -> Path:
    path = run / "policy.pt"
    torch.save({**torch.load(path, weights_only=True), **parts}, path)
    return path


# Each command, as it is given what a stranger has made.
COMMANDS = {
    "eval-policy": lambda path: ["eval", str(path), "episodes=1"],
    "eval-checkpoint": lambda path: ["eval", str(path), "episodes=1"],
    "collect-policy": lambda path: ["data", "collect", f"policy={path}", "steps=5", "out=data"],
    "collect-checkpoint": lambda path: ["data", "collect", f"policy={path}", "steps=5", "out=data"],
    "train-checkpoint": lambda path: ["train", f"checkpoint={path}", "total_steps=45"],
}


def spoilt(run: Path, name: str, env: dict) -> list[str]:
    if name.endswith("policy"):
        return COMMANDS[name](spoil_policy(run, config=config_of(run, {"env": env})))
    return COMMANDS[name](spoil_checkpoint(run, env=env))


def refused(words: list[str], capsys) -> str:
    """One sentence, and nothing was written."""
    before = there()
    capsys.readouterr()
    assert command(words) == 2, words
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert there() == before
    assert not list(Path("outputs").glob("*/*"))
    return said


def there() -> list[Path]:
    """All files here, without what Python leaves and the empty folders that Hydra makes."""
    left = {"outputs", "__pycache__"}
    return sorted(path for path in Path().rglob("*") if not left & set(path.parts))


# ---- what is imported ----


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "env", [PETTINGZOO, GYMNASIUM, PATHS], ids=["pettingzoo", "gymnasium", "kwargs"]
)
def test_an_environment_that_is_not_known_is_not_made(run, name, env, capsys):
    words = spoilt(run, name, env)
    said = refused(words, capsys)
    assert "a stranger's" in said
    assert "trust=true if you trust who made it" in said
    assert str(env.get("id", "xml_file")) in said
    assert not Path("imported").exists()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_trusted_one_is_made(run, name):
    words = spoilt(run, name, GYMNASIUM)
    assert command([*words, "trust=true"]) == 0
    assert Path("imported").exists()


@pytest.mark.parametrize("name", [name for name in COMMANDS if "train" not in name])
def test_the_command_line_names_another_environment(run, name):
    """The network is used, the environment is the user's."""
    words = spoilt(run, name, GYMNASIUM)
    assert command([*words, "env=cartpole"]) == 0
    assert not Path("imported").exists()


@pytest.mark.parametrize("name", [name for name in COMMANDS if "train" not in name])
def test_an_environment_that_does_not_fit_is_refused(run, name, capsys):
    words = spoilt(run, name, GYMNASIUM)
    assert "Pendulum-v1" in refused([*words, "env=pendulum"], capsys)


def test_who_says_the_same_continues(run, capsys):
    """As the user who had trained in a module of his own."""
    words = spoilt(run, "train-checkpoint", {"id": "theirs:Theirs-v0", "kwargs": {"x": 1}})
    said = refused([*words, "env=cartpole", "env.id=theirs:Theirs-v0"], capsys)
    assert "env" in said
    words = spoilt(run, "train-checkpoint", GYMNASIUM)
    assert command([*words, "env=cartpole", "env.id=theirs:Theirs-v0"]) == 0


def test_what_is_known_is_known():
    cartpole = {"api": "gymnasium", "id": "CartPole-v1", "kwargs": {}}
    assert is_known(cartpole)
    assert is_known({**cartpole, "kwargs": {"sutton_barto_reward": True, "render_mode": "human"}})
    assert is_known({"api": "pettingzoo", "id": "gear.train.tasks.hunt", "kwargs": {"side": 5}})
    for other in (
        {"id": "CartPole-v77"},
        {"id": "json:CartPole-v1"},
        {"id": None},
        {"api": "pettingzoo", "id": "json"},
        {"api": "pettingzoo", "id": "CartPole-v1"},
        {"kwargs": {"path": "../x"}},
        {"kwargs": {"deep": [{"er": "a/b"}]}},
    ):
        assert not is_known({**cartpole, **other}), other


# ---- what is read ----


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("key", ["name", "id"])
def test_variables_are_not_looked_up(run, name, key, capsys):
    said = refused(spoilt(run, name, {key: "${oc.env:SECRET}"}), capsys)
    assert f"env.{key}='${{oc.env:SECRET}}' is no value" in said
    assert "of-the-user" not in said


@pytest.mark.parametrize(
    "text",
    [
        "a: ${b}\nb: 1\n",
        "a: ???\n",
        "a: [x, {b: '${oc.env:HOME}'}]\n",
        "a: &x [1]\nb: *x\n",
        "!!python/object/apply:os.system ['touch unpickled']\n",
        "a: !!python/object/apply:os.system ['touch unpickled']\n",
        "a: !!python/object/apply:pathlib.Path ['x']\n",
        "- 1\n",
        "7\n",
        "a: {b: \n",
        "a: 2020-01-01\n",
        "[" * 5000,
    ],
)
def test_a_text_that_no_run_writes_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        gear.CorruptData, match=r"file\.yaml holds no configuration that gear train"
    ):
        written(text, "file.yaml")
    assert not Path("unpickled").exists()


def test_files_of_the_user_are_not_read(run, capsys):
    """A checkpoint that learns from data names the data; so must the user."""
    write_cartpole(Path("mine"), (7, 12, 5, 9))
    offline = ("data=saved", "model=mlp", "algo=bc", "algo.batch_size=4", "eval_every=0")
    words = ["env=cartpole", *offline, "data.path=mine", "total_steps=2", "hydra.run.dir=offline"]
    assert main([*words, "logger=csv"]) == 0
    more = ["train", "checkpoint=offline", "total_steps=3"]
    assert "asks for data.path='mine'" in refused(more, capsys)
    assert command([*more, "data.path=mine"]) == 0
    assert command([*more[:-1], "total_steps=4", "trust=true"]) == 0


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"dist": {"master_addr": "far.example"}}, "dist.master_addr='far.example'"),
        ({"dist": {"config": {"csv_monitor": {"output_path": "/x"}}}}, "dist.config="),
        ({"logger": {"mode": "online"}}, "logger.mode='online'"),
    ],
)
def test_nothing_is_sent_or_written_where_the_checkpoint_says(run, changes, asked, capsys):
    path = spoil_checkpoint(run, **changes)
    said = refused(["train", f"checkpoint={path}", "total_steps=45"], capsys)
    assert f"asks for {asked}" in said


# ---- what is written ----


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("path", ["x/../../../../escaped", "/escaped", "..", ".hidden", ""])
def test_names_are_no_paths(run, name, path, capsys):
    said = refused(spoilt(run, name, {"name": path}), capsys)
    assert f"env.name={path} is not possible: give a name of letters" in said


# ---- what is unpickled ----


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pickle_runs_nothing(run, name, capsys):
    path = run / "policy.pt" if name.endswith("policy") else find(run).path / "trainer.pt"
    for data in (
        pickle.dumps({"format": 3, "x": Evil()}),
        pickle.dumps(Evil()),
        b"PK\x03\x04 and no more",
        b"",
    ):
        path.write_bytes(data)
        given = path if name.endswith("policy") else path.parent
        assert str(path) in refused(COMMANDS[name](given), capsys)
    torch.save({"format": Evil()}, path)
    refused(COMMANDS[name](given), capsys)


@pytest.mark.parametrize(
    "parts",
    [
        {"network": "networks:torch"},
        {"network": "exported:save_policy", "arguments": {"path": "x"}},
        {"network": "..config:read"},
        {"network": None},
        {"network": ["networks:QNetwork"]},
        {"arguments": {"obs_shape": [1, 9], "num_actions": 2, "hidden": [8], "frames": False}},
        {"arguments": {"no": 1}},
        {"arguments": None},
        {"state_dict": {"x": torch.zeros(1)}},
        {"config": 7},
    ],
    ids=str,
)
def test_a_policy_chooses_one_of_the_networks_and_its_sizes(run, parts, capsys):
    path = spoil_policy(run, **parts)
    said = refused(["eval", str(path), "episodes=1"], capsys)
    assert str(path) in said
    if parts.get("network"):
        with pytest.raises(gear.CorruptData, match="a policy is one of networks:QNetwork"):
            load_policy(path)


def test_the_networks_are_classes_that_play():
    """Those that other tests export are among them; here, that each name is one."""
    import importlib

    for name in NETWORKS:
        module, _, kind = name.partition(":")
        found = getattr(importlib.import_module(f"gear.train.models.{module}"), kind)
        assert issubclass(found, torch.nn.Module)
        assert callable(found.greedy)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_ranks": "4"},
        {"num_ranks": -1},
        {"num_ranks": 10**9},
        {"config_ranks": None},
        {"format": "3"},
        {"algorithm": {}},
        {"algorithm": 7},
        {"counters": {"evil": 1}},
        {"rng": {"ndarray": "O", "shape": [1], "data": torch.zeros(8, dtype=torch.uint8)}},
        {"run": "../../x"},
    ],
    ids=str,
)
def test_a_checkpoint_of_other_content_is_harmless(run, changes, capsys):
    """It is refused, or what is wrong in it is not used."""
    path = find(run).path / "trainer.pt"
    torch.save({**torch.load(path, weights_only=True), **changes}, path)
    for words in (["eval", str(path.parent), "episodes=1", "out=results"],):
        code = command(words)
        said = capsys.readouterr().err
        assert code in (0, 2)
        assert code == 0 or said.count("\n") == 1, said
    assert not Path("x").exists()


# ---- data ----


def test_saved_data_runs_nothing_and_names_no_files(run, capsys):
    """Its files are those that it consists of, and none is a pickle."""
    words = ["train", "env=cartpole", "data=saved", "algo=bc", "model=mlp", "data.path=theirs"]
    write_cartpole(Path("theirs"), (7, 12, 5, 9))
    for path in sorted(p for p in Path("theirs").rglob("*") if p.is_file()):
        whole = path.read_bytes()
        path.write_bytes(pickle.dumps(Evil()))
        assert command([*words, "total_steps=1"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        path.unlink()
        path.symlink_to("/etc/passwd")
        assert command([*words, "total_steps=1"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert "root:" not in said
        path.unlink()
        path.write_bytes(whole)


def test_a_folder_of_runs_to_compare_runs_nothing(run, capsys):
    for name, text in (
        ("summary.json", "[1"),
        ("summary.json", "7"),
        ("summary.json", '{"final_return": "x"}'),
        ("metrics.csv", "a,b\n1,2\n"),
        ("metrics.csv", "step,return\nx,y\n"),
        ("config.yaml", "a: ${oc.env:SECRET}\n"),
        ("config.yaml", "!!python/object/apply:os.system ['touch unpickled']\n"),
    ):
        whole = (run / name).read_bytes()
        (run / name).write_text(text)
        assert command(["compare", str(run)]) == 2, text
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert "of-the-user" not in said
        (run / name).write_bytes(whole)
    Path("outside.png").write_text("mine")
    (run / "compare.png").symlink_to(os.path.abspath("outside.png"))
    assert command(["compare", str(run)]) in (0, 2)
    assert Path("outside.png").read_text() == "mine"
