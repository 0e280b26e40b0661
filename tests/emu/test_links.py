"""Links: ready ones and their sources, files, and numbers that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gear.emu import Beside, Footprint, Links, Measured, Number, Point, Shape
from gear.emu.models.ready import READY
from gear.errors import CorruptData, InvalidArgument, IoError

FEW = {
    "nvlink.gb_per_s": 10,
    "nic.gb_per_s": 1,
    "nic.per_node": 1,
    "simple.share": 1,
    "simple.base_us": 1,
    "simple.nvlink_us": 1,
    "simple.nic_us": 2,
    "simple.tree_us": 2,
}


def links(**changes: float) -> Links:
    numbers = {**FEW, **{name.replace("__", "."): value for name, value in changes.items()}}
    return Links("toy", {name: Number(value) for name, value in numbers.items()})


@pytest.mark.parametrize("name", READY)
def test_ready_links_name_the_source_of_each_number(name: str) -> None:
    loaded = Links.load(name)
    assert loaded.protocols == ("ll", "ll128", "simple")
    for number in loaded.numbers.values():
        assert number.basis == "published"
        assert number.source


def test_there_and_back(tmp_path: Path) -> None:
    one = links().with_measured(
        [Measured("send", Shape(2), Point(8, 1e-6, 5e-7, 2e-6, "measured", "here"))]
    )
    one.save(tmp_path / "links.json")
    assert Links.load(tmp_path / "links.json") == one
    assert [path.name for path in tmp_path.iterdir()] == ["links.json"]


def test_a_number_that_is_given_takes_the_place_of_its_own() -> None:
    one = links().with_measured([Measured("send", Shape(2), Point(8, 1e-6))])
    other = one.with_numbers({"nic.gb_per_s": 25})
    assert other["nic.gb_per_s"] == 25
    assert other.numbers["nic.gb_per_s"].basis == "given"
    assert other["nvlink.gb_per_s"] == 10
    assert other.measured == ()  # they were taken over the links as they were
    assert one.with_numbers({}) == one


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: links(nic__gb=1), "'nic.gb' is no number of links: nvlink.gb_per_s"),
        (lambda: links(nvls__gb_per_s__many=1), "'nvls.gb_per_s.many' is no number"),
        (lambda: links(ll__share=0.5), "a part of protocol ll: give ll.base_us, ll.nic_us"),
        (lambda: links(nvls__gb_per_s__8=480), "lack nvls.base_us"),
        (lambda: links(nvls_tree__gb_per_s=375), "lack nvls_tree.base_us, nvls_tree.hop_us"),
        (lambda: links(nic__gb_per_s=0), "0.0 is no number of the links"),
        (lambda: links(nic__gb_per_s=float("nan")), "nan is no number"),
        (lambda: Links("toy", {}), "have no protocol"),
        (
            lambda: Links("toy", {k: v for k, v in links().numbers.items() if "nic.gb" not in k}),
            "lack nic.gb_per_s",
        ),
        (lambda: Measured("all_sum", Shape(2), Point(8, 1e-6)), "operation 'all_sum'"),
        (lambda: Number(1.0, "guessed"), "basis 'guessed'"),
        (lambda: Shape(0), "per_node of a Shape 0: 1 or more"),
        (lambda: Shape(8, 0), "nodes of a Shape 0: 1 or more"),
        (lambda: Links.load("hgx-h1000"), r"'hgx-h1000' are neither ready ones \(dgx-a100, hgx-h"),
    ],
)
def test_what_is_not_allowed_is_named(make, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        make()


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.pop("numbers"),
        lambda said: said.update(format=2),
        lambda said: said.update(measured=[{"operation": "send"}]),
        lambda said: said["numbers"].update({"nic.gb_per_s": 25}),
    ],
    ids=["part", "format", "measured", "number"],
)
def test_a_file_that_save_did_not_write_is_refused(tmp_path: Path, change) -> None:
    path = tmp_path / "links.json"
    links().save(path)
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))
    with pytest.raises(CorruptData, match=r"links\.json"):
        Links.load(path)


def test_torn_and_missing_files_are_named(tmp_path: Path) -> None:
    torn = tmp_path / "torn.json"
    torn.write_text('{"format": 1')
    with pytest.raises(CorruptData, match=r"torn\.json are no file that Links.save wrote"):
        Links.load(torn)
    torn.write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptData, match=r"torn\.json are no text"):
        Links.load(torn)
    with pytest.raises(IoError, match="cannot be read"):
        Links.load(tmp_path)
    with pytest.raises(IoError, match="cannot be written"):
        links().save(tmp_path / "none" / "links.json")


def test_measurements_take_the_place_of_their_like_and_never_fall() -> None:
    def one(operation: str, size: int, us: float) -> Measured:
        return Measured(operation, Shape(2), Point(size, us * 1e-6, basis="measured"))

    before = links().with_measured([one("send", 8, 1), one("all_reduce", 8, 5)])
    after = before.with_measured(
        [one("all_reduce", 32, 9), one("all_reduce", 8, 7), one("all_reduce", 16, 5)]
    )
    found = [(m.operation, m.point.bytes, round(m.point.seconds * 1e6, 9)) for m in after.measured]
    assert found == [
        ("send", 8, 1),
        ("all_reduce", 8, 6),
        ("all_reduce", 16, 6),
        ("all_reduce", 32, 9),
    ]
    with pytest.raises(InvalidArgument, match="nothing between 8 and 32 bytes"):
        before.with_measured([one("send", 8, 1), one("send", 32, 2)])


def test_sums_in_switches_go_over_the_links() -> None:
    h100 = Links.load("hgx-h100")
    half = {"nic.gb_per_s": h100["nic.gb_per_s"] / 2}
    changed = h100.with_numbers(half)
    assert changed["nvls_tree.gb_per_s"] == h100["nvls_tree.gb_per_s"] / 2
    assert changed["nvls.gb_per_s.8"] == h100["nvls.gb_per_s.8"]
    assert changed == h100.with_bandwidths({"nic": 0.5})
    own = h100.with_numbers(half | {"nvls_tree.gb_per_s": 300})
    assert own["nvls_tree.gb_per_s"] == 300
    inside = h100.with_bandwidths({"nvlink": 0.5, "nic": 0})  # a stopped one has no bandwidth
    assert inside["nvls.gb_per_s.8"] == h100["nvls.gb_per_s.8"] / 2
    assert inside["nic.gb_per_s"] == h100["nic.gb_per_s"]


def test_footprints_there_and_back_and_in_the_place_of_their_like(tmp_path: Path) -> None:
    links = Links.load("hgx-h100").with_footprints(
        [
            Footprint("all_reduce", 0, 1, 128, 103808),
            Footprint("all_gather", 0, 1, 128, 103808),
        ]
    )
    links = links.with_footprints([Footprint("all_reduce", 0, 2, 256, 0)])
    links.save(tmp_path / "links.json")
    again = Links.load(tmp_path / "links.json")
    assert again == links
    assert [(one.operation, one.blocks) for one in again.footprints] == [
        ("all_gather", 1),
        ("all_reduce", 2),
    ]
    # Another bandwidth changes what is measured, and not what kernels take.
    assert links.with_numbers({"nic.gb_per_s": 25.0}).footprints == links.footprints


def test_links_of_before_there_were_footprints_are_read(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    Links.load("hgx-h100").save(path)
    said = json.loads(path.read_text())
    del said["footprints"], said["beside"]
    path.write_text(json.dumps(said))
    assert Links.load(path).footprints == ()
    assert Links.load(path).beside is None


def test_what_nccl_takes_beside_its_time_there_and_back(tmp_path: Path) -> None:
    beside = Beside(group_bytes=200 << 20, host_us=25.5, product_lost=0.25, two_groups=1.9)
    links = replace(Links.load("hgx-h100"), beside=beside)
    links.save(tmp_path / "links.json")
    assert Links.load(tmp_path / "links.json") == links
    assert links.with_numbers({"nic.gb_per_s": 25.0}).beside == beside
    for name in ("group_bytes", "host_us", "product_lost", "two_groups"):
        with pytest.raises(InvalidArgument, match=rf"{name} -1 of the links: 0 to "):
            replace(beside, **{name: -1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"blocks": 0}, r"blocks 0 of a footprint: 1 to 65536 are allowed"),
        ({"threads": 1025}, r"threads 1025 of a footprint: 1 to 1024 are allowed"),
        ({"shared": 1 << 20}, r"shared 1048576 of a footprint: 0 to 232448 are allowed"),
        ({"bytes": 0.5}, r"bytes 0.5 of a footprint: "),
        ({"operation": "all_sum"}, r"all_sum"),
    ],
)
def test_a_footprint_that_cannot_be_is_named(change: dict[str, object], words: str) -> None:
    given = {"operation": "all_reduce", "bytes": 0, "blocks": 1, "threads": 32, "shared": 0}
    with pytest.raises(InvalidArgument, match=words):
        Footprint(**{**given, **change})  # type: ignore[arg-type]
