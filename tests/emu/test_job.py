"""Jobs: what they refuse, and the file that says one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gear.emu as emu
from gear.emu.group import changes_of
from gear.errors import CorruptData, InvalidArgument, IoError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"ranks": 0}, r"ranks of a job 0: 1 or more"),
        ({"ranks": 12, "per_node": 8}, r"12 ranks, 8 a node: a multiple of 8"),
        ({"ranks": 4, "real": (4,)}, r"real rank 4 of 4: 0 to 3"),
        ({"ranks": 4, "real": (1, 1)}, r"real rank 1 is given twice"),
        ({"ranks": 4, "real": ()}, r"no real rank"),
        ({"ranks": 4, "real": 3}, r"real 3 of a job: a list of ranks"),
        ({"ranks": 4, "real": "all"}, r"real 'all' of a job: a list of ranks"),
        ({"ranks": 4, "links": 5}, r"links of a job 5: a string"),
        ({"ranks": 4, "model": 5}, r"model of a job 5: a string"),
        ({"ranks": 4, "set": 5}, r"set 5 of a job: numbers by name"),
        ({"ranks": 4, "set": {"nic.gb_per_s": "x"}}, r"a number of the links 'x': a number"),
        ({"ranks": 4, "events": ("dead",)}, r"event 'dead' of a job: Slow, Dead"),
        ({"ranks": 4, "real": (-1,)}, r"real rank -1: 0 or more"),
        ({"ranks": 4, "links": "weather"}, r"links 'weather' are neither ready ones"),
        ({"ranks": 4, "set": {"nic.colour": 1}}, r"'nic.colour' is no number of links"),
        ({"ranks": 4, "model": "weather"}, r"model 'weather': 'two_level'"),
        ({"ranks": 4, "events": (emu.Dead(0),)}, r"event of rank 0, which is real"),
        ({"ranks": 4, "events": (emu.Slow(9, by=2),)}, r"event of rank 9: 0 to 3"),
    ],
)
def test_what_cannot_be_is_refused(words: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        emu.Job(**words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"by": 0.5}, r"by 0.5 of a slow event: 1 or more"),
        ({"by": 2, "from_s": 3.0, "to_s": 3.0}, r"from 3.0 to 3.0 s"),
        ({"by": 2, "from_s": "soon"}, r"from_s of a slow event 'soon': a number"),
    ],
)
def test_slow_ranks_that_cannot_be(words: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        emu.Slow(1, **words)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: emu.Jitter(0.0), "sigma 0.0 of a jitter event: more than 0"),
        (lambda: emu.Jitter(0.1, rank=-1), "rank of a jitter event -1: 0 or more"),
        (lambda: emu.LinkChange("road", 0.5), "link 'road' of a link event: nvlink, nic are"),
        (lambda: emu.LinkChange("nic", -1), "times -1.0 of a link event: 0 or more"),
        (lambda: emu.LinkChange("nic", 1, from_s=-2), "from_s -2 of a link event: 0 or more"),
        (lambda: emu.Dead(1, call=-1), "call of a dead event -1: 0 or more"),
    ],
)
def test_events_that_cannot_be(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make()


def test_changes_of_links_add_up_in_time() -> None:
    events = (
        emu.LinkChange("nic", 0.5, from_s=7),
        emu.LinkChange("nvlink", 0.1, from_s=3),
        emu.LinkChange("nic", 1, from_s=9),
    )
    assert changes_of(emu.Job(16, events=events)) == [
        (3, {"nvlink": 0.1}),
        (7, {"nvlink": 0.1, "nic": 0.5}),
        (9, {"nvlink": 0.1, "nic": 1}),
    ]


def test_a_job_is_saved_and_loaded(tmp_path: Path) -> None:
    job = emu.Job(
        64,
        per_node=4,
        real=(32, 0),
        links="dgx-a100",
        set={"nic.gb_per_s": 12.5},
        events=(
            emu.Slow(7, by=1.3),
            emu.Dead(9, call=5),
            emu.Slow(1, by=2, to_s=3.5),
            emu.Jitter(0.2),
            emu.Jitter(0.3, rank=5),
            emu.LinkChange("nic", 0.5, from_s=2.0),
        ),
        seed=5,
    )
    job.save(tmp_path / "job.toml")
    assert emu.Job.load(tmp_path / "job.toml") == job
    assert job.real == (0, 32)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("ranks =", CorruptData, "is no TOML"),
        ("per_node = 8", InvalidArgument, "does not say how many ranks"),
        ("ranks = 8\nrealm = 3", InvalidArgument, "has realm: ranks, per_node, real"),
        (
            "ranks = 8\n[[events]]\nrank = 3",
            InvalidArgument,
            "event of kind None: slow, dead, jitter, link",
        ),
        (
            'ranks = 8\n[[events]]\nkind = "dead"\nwhen = 3',
            InvalidArgument,
            "event of kind dead: .*when",
        ),
    ],
)
def test_files_that_are_no_job(tmp_path: Path, text: str, error: type, said: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(error, match=said):
        emu.Job.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="cannot be read"):
        emu.Job.load(tmp_path / "job.toml")


@pytest.mark.parametrize(
    ("ranks", "shape"),
    [
        (range(16), emu.Shape(8, 2)),
        ([0, 8], emu.Shape(1, 2)),
        ([1, 2, 3], emu.Shape(3, 1)),
        ([0, 1, 8], emu.Shape(2, 2)),  # the fullest node counts
    ],
)
def test_how_a_group_lies_on_nodes(ranks: list[int], shape: emu.Shape) -> None:
    assert emu.Job(16).shape_of(ranks) == shape


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("link", ["nvlink", "nic"])
def test_a_slower_link_makes_the_built_in_model_slower(operation: str, link: str) -> None:
    links = emu.Links.load("hgx-h100")
    shape = emu.Shape(8, 64) if link == "nic" else emu.Shape(8, 1)
    took = [
        emu.ask(emu.two_level, operation, shape, links.with_bandwidths({link: part}))
        .at(256 << 20)
        .seconds
        for part in (1, 0.5, 0.25)
    ]
    assert took[1] > 1.3 * took[0]
    assert took[2] > 1.3 * took[1]


def test_an_unchanged_link_keeps_what_was_measured() -> None:
    point = emu.Point(1 << 20, 1e-3, basis="measured")
    links = emu.Links.load("hgx-h100").with_measured(
        [emu.Measured("all_reduce", emu.Shape(8, 2), point)]
    )
    assert links.with_bandwidths({"nic": 1}) == links
    assert links.with_bandwidths({"nic": 0.5}).measured == ()


def test_a_job_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    emu.Job(4).save(path)
    (tmp_path / "job.toml.saving").mkdir()  # in the way of the new one
    with pytest.raises(IoError, match="cannot be written"):
        emu.Job(8).save(path)
    assert emu.Job.load(path) == emu.Job(4)


def test_what_takes_as_long_as_here_has_real_ranks_alone() -> None:
    links = emu.Links.load("hgx-h100")
    model = emu.Job(2, real=(0, 1), model="none").loaded_model()
    point = emu.ask(model, "send", emu.Shape(2), links).at(9)
    assert (point.seconds, point.basis) == (0.0, "given")
    with pytest.raises(InvalidArgument, match="model 'none', and ranks that are emulated"):
        emu.Job(4, real=(0, 1), model="none")
