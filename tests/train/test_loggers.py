"""Where metrics go."""

from __future__ import annotations

import csv
import json
import os
import struct
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

import gear
from gear.train.record import loggers
from gear.train.record.loggers import check_installed, make_writers

COLUMNS = ["return", "eval_return"]
FILE_HEADER, RECORD_HEADER = b":W&B\xe1\xbe\x00", struct.Struct("<IHB")
WHOLE = 1  # what a record's header says if the record does not cross blocks


@pytest.fixture
def offline_wandb(tmp_path, monkeypatch):
    """wandb itself, with a home of its own. The program that it starts ends with the test."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))  # the run's own folder comes first
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    yield
    wandb.teardown()
    until = time.monotonic() + 120
    while started_by_wandb():
        assert time.monotonic() < until, started_by_wandb()
        time.sleep(0.05)


def started_by_wandb():
    """The command lines of the programs of wandb that belong to this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:
            continue  # it has ended
        if "wandb" in words[0] and str(os.getpid()) in words:
            found.append(words)
    return found


def kept(run):
    """Kind of record -> the records that wandb keeps of a run, by its own definition of them.

    They lie in its file as in a log of LevelDB's, whose blocks of 32 KiB such a run does not fill.
    The last of them are there when wandb's program has ended.
    """
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()
    (file,) = run.glob("run-*.wandb")
    data, found = file.read_bytes(), defaultdict(list)
    assert data.startswith(FILE_HEADER)
    at = len(FILE_HEADER)
    while at < len(data):
        _, size, kind = RECORD_HEADER.unpack_from(data, at)
        assert kind == WHOLE
        at += RECORD_HEADER.size
        record = Record.FromString(data[at : at + size])
        name = record.WhichOneof("record_type")
        found[name].append(getattr(record, name))
        at += size
    return found


def row(history):
    """What was logged, without what wandb adds (_step, _timestamp, ...)."""
    values = {item.nested_key[0]: json.loads(item.value_json) for item in history.item}
    return {name: value for name, value in values.items() if not name.startswith("_")}


@pytest.fixture
def fake_wandb(monkeypatch):
    """How wandb is begun, in the place of wandb."""
    told = []

    def init(**given):
        told.append(given)
        return SimpleNamespace(
            define_metric=lambda name, step_metric: None,
            log=lambda row: None,
            finish=lambda: None,
        )

    module = SimpleNamespace(init=init, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return told


def write(configure, run_dir, *overrides, step=0):
    writers = make_writers(configure(*overrides), run_dir, COLUMNS, step)
    for writer in writers:
        writer.write(step + 10, {"return": 1.5})
        writer.write(step + 20, {"eval_return": -2.0})
        writer.close()


def test_csv_has_a_row_for_each_and_empty_places(configure, tmp_path):
    write(configure, tmp_path, "logger=csv")
    write(configure, tmp_path, "logger=csv", step=10)  # continued: the row of 20 is replaced
    with (tmp_path / "metrics.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert found == [
        ["step", *COLUMNS],
        *(["10", "1.5", ""], ["20", "1.5", ""], ["30", "", "-2"]),
    ]


@pytest.mark.needs("wandb")
def test_wandb_keeps_rows_over_environment_steps(configure, tmp_path, offline_wandb):
    write(configure, tmp_path, "logger=wandb", "seed=4", "logger.project=mine")
    assert started_by_wandb()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    found = kept(folder)
    (metric,) = found["metric"]
    assert (metric.glob_name, metric.step_metric) == ("*", "env_steps")
    assert [row(history) for history in found["history"]] == [
        {"env_steps": 10, "return": 1.5},
        {"env_steps": 20, "eval_return": -2.0},
    ]
    (run,) = found["run"]
    assert (run.project, run.display_name) == ("mine", tmp_path.name)
    config = {each.key: json.loads(each.value_json) for each in run.config.update}
    assert config["seed"] == 4
    assert config["logger"]["project"] == "mine"
    assert len(found["exit"]) == 1
    assert (tmp_path / "metrics.csv").exists()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.needs("wandb")
def test_a_continued_run_is_the_same_run_of_wandb(configure, tmp_path, offline_wandb):
    """By its id, which `wandb sync --append` joins its parts by."""
    other = tmp_path / "other"
    other.mkdir()
    for folder in (tmp_path, tmp_path, other):
        write(configure, folder, "logger=wandb")
        time.sleep(1)  # wandb names the folder of a part by the second
    parts = sorted((tmp_path / "wandb").glob("offline-run-*"))
    (another,) = (other / "wandb").glob("offline-run-*")
    first, again, third = (kept(part)["run"][0].run_id for part in (*parts, another))
    assert first == again != third


def test_online_wandb_is_asked_to_resume_the_run(configure, tmp_path, fake_wandb):
    """By a stand-in: without wandb's server, wandb itself does not begin in this mode."""
    for _ in range(2):
        write(configure, tmp_path, "logger=wandb", "logger.mode=online")
    first, again = fake_wandb
    assert first["id"] == again["id"]
    assert {(run["mode"], run["resume"]) for run in fake_wandb} == {("online", "allow")}


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(loggers, "find_spec", lambda name: None)
    check_installed(["csv"])
    with pytest.raises(gear.InvalidArgument) as refused:
        check_installed(["csv", "wandb"])
    assert str(refused.value) == (
        "[train] logger.writers=[csv,wandb]: wandb is not installed: "
        "pip install 'gear-replay[wandb]', or choose another, as in logger=csv"
    )
