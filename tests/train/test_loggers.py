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
from gear.train.record import folder, loggers
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
    """In the place of wandb: the runs that were begun, and the rows that the server has."""
    told, rows = [], []

    def init(**given):
        run = SimpleNamespace(
            **given,
            step=len(rows),  # as wandb's server tells where a run is resumed
            define_metric=lambda name, step_metric: None,
            log=lambda row, step, commit: rows.append((step, row["env_steps"])),
            finish=lambda: None,
        )
        told.append(run)
        return run

    module = SimpleNamespace(init=init, Settings=dict)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return told, rows


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
def test_a_continued_run_has_each_row_once(configure, tmp_path, offline_wandb):
    """Of a run that was killed at 20 and continued from 10, one record, as in metrics.csv."""
    for step in (0, 10):
        write(configure, tmp_path, "logger=wandb", step=step)
    (part,) = (tmp_path / "wandb").glob("offline-run-*")
    found = kept(part)
    assert found["run"][0].run_id == folder.run_of(tmp_path)
    assert [row(history) for history in found["history"]] == [
        {"env_steps": 10, "return": 1.5},
        {"env_steps": 20, "return": 1.5},
        {"env_steps": 30, "eval_return": -2.0},
    ]
    with (tmp_path / "metrics.csv").open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["10", "20", "30"]


def test_online_wandb_is_sent_each_row_once(configure, tmp_path, fake_wandb):
    """By a stand-in: without wandb's server, wandb itself does not begin in this mode."""
    for step in (0, 10, 10):
        write(configure, tmp_path, "logger=wandb", "logger.mode=online", step=step)
    runs, rows = fake_wandb
    assert {run.id for run in runs} == {folder.run_of(tmp_path)}
    assert {(run.mode, run.resume) for run in runs} == {("online", "allow")}
    # 20 was there when the run was killed; of the continued one its row is the second again.
    assert rows == [(0, 10), (1, 20), (2, 30)]


def test_wandb_needs_the_table(configure):
    with pytest.raises(gear.InvalidArgument, match=r"\[.wandb.\] is not possible: give csv, too"):
        configure("logger=wandb", "logger.writers=[wandb]")


@pytest.mark.needs("tensorboard")
@pytest.mark.parametrize("step", [0, 10])
def test_tensorboard_shows_each_row_once(configure, tmp_path, step):
    """Of a run that was killed at 20, and started afresh or continued."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    write(configure, tmp_path, "logger=tensorboard")
    time.sleep(1.1)  # its files are read in the order of the second in which they begin
    write(configure, tmp_path, "logger=tensorboard", step=step)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    shown = {name: [event.step for event in events.Scalars(name)] for name in COLUMNS}
    expected = {"return": [10], "eval_return": [20]} if step == 0 else None
    assert shown == (expected or {"return": [10, 20], "eval_return": [30]})


def test_a_restart_that_is_killed_leaves_the_table_whole(configure, tmp_path, monkeypatch):
    write(configure, tmp_path, "logger=csv")
    whole = (tmp_path / "metrics.csv").read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write(configure, tmp_path, "logger=csv", step=10)
    assert (tmp_path / "metrics.csv").read_bytes() == whole


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "step,return\nx,1\n", "step,return\n1,x\n"])
def test_another_table_is_not_continued(configure, tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(gear.CorruptData, match=r"metrics\.csv is not the table of a run's metrics"):
        write(configure, tmp_path, "logger=csv", step=10)
    assert (tmp_path / "metrics.csv").read_text() == text


def test_what_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(loggers, "has", lambda name: False)
    check_installed(["csv"])
    with pytest.raises(gear.InvalidArgument) as refused:
        check_installed(["csv", "wandb"])
    assert str(refused.value) == (
        "[train] logger.writers=[csv,wandb]: wandb is not installed: "
        "pip install 'gear-replay[wandb]', or choose another, as in logger=csv"
    )
