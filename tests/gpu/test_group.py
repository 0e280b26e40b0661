"""Buffers over several ranks with a GPU each, a process a rank: every batch equals, bit by bit,
that of the same buffer in host memory. With one GPU the ranks share it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rank_processes import run_ranks

SAMPLERS = ["uniform", "weighted", "sequential", "topk", "fifo"]
Found = list[dict[str, Any]]
Play = Callable[..., list[Found]]


def nodes_of_their_own(rank: int) -> dict[str, str]:
    """A node a rank, for GEAR and for NCCL."""
    return {"GEAR_NODE": f"node-{rank}", "NCCL_HOSTID": f"node-{rank}"}


def over_sockets(rank: int) -> dict[str, str]:
    """As between machines without a faster network."""
    return {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", **nodes_of_their_own(rank)}


def case(sampler: str, **more: Any) -> dict[str, Any]:
    """Packed batches of topk; of sequential as many as the first epoch has."""
    batches = 9 if sampler == "sequential" else 12
    return {"sampler": sampler, "packed": sampler == "topk", "batches": batches} | more


@pytest.fixture
def play(gpu) -> Play:
    """What every rank says of the cases, all of whose batches were equal."""

    def play(
        cases: list[dict[str, Any]], variables: Callable[[int], dict[str, str]] = lambda _: {}
    ) -> list[Found]:
        ranks = 2
        if not gpu.rehearsal:
            import torch

            ranks = max(2, torch.cuda.device_count())
        cases = [one | {"rehearsal": gpu.rehearsal} for one in cases]
        found = run_ranks(ranks, cases, variables)
        for one, *others in zip(cases, *found, strict=True):
            assert {other["same"] for other in others} == {one["batches"]}, one
        return found

    return play


@pytest.mark.timeout(150)
@pytest.mark.parametrize("locality", ["off", "first"])
@pytest.mark.parametrize("tier", ["device", "pinned"])
def test_ranks_read_each_other_by_pointer(play: Play, tier: str, locality: str) -> None:
    cases = [case(one, tier=tier, locality=locality) for one in SAMPLERS]
    packed = case("weighted", tier=tier, locality=locality, packed=True)
    for rank in play([*cases, packed]):
        for sampler, stats in zip([*SAMPLERS, "weighted"], rank, strict=True):
            assert stats["message_bytes"] == 0
            assert stats["remote_bytes"] == 0
            if locality == "off" and sampler in ("uniform", "weighted"):
                assert stats["same_node_bytes"] > 0.2 * stats["bytes"], sampler
            elif sampler == "uniform":
                assert stats["local_bytes"] > 0.8 * stats["bytes"]


@pytest.mark.timeout(150)
@pytest.mark.parametrize("ranks", [3, 4])
def test_ranks_that_share_gpus_draw_the_same(gpu, ranks: int) -> None:
    cases = [
        case(sampler, locality=locality, batches=6, rehearsal=gpu.rehearsal)
        for sampler in ("uniform", "weighted")
        for locality in ("first", "off")
    ]
    for rank in run_ranks(ranks, cases):
        assert [one["same"] for one in rank] == [6] * len(cases)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("sampler", ["uniform", "weighted"])
def test_a_rank_that_dies_is_named(gpu, sampler: str) -> None:
    cases = [case(sampler, dies=1, rehearsal=gpu.rehearsal)]
    [first], [second] = run_ranks(2, cases)
    assert second == {"died": True}
    assert "rank 1 (pid " in first["error"]


@pytest.mark.timeout(150)
def test_a_rank_without_steps_takes_its_share_from_the_others(play: Play) -> None:
    found = play([case("uniform", tier=tier, empty=0) for tier in ("device", "pinned")])
    for stats in found[0]:
        assert stats["local_bytes"] == 0
        assert stats["same_node_bytes"] > 0


@pytest.mark.gpus(2)
@pytest.mark.timeout(150)
def test_a_rank_may_have_its_second_loader_on_another_gpu(play: Play) -> None:
    """Kernels of the others write no updates there: that GPU's memory has no room for them. Where
    that rank has none of its own to tell, nothing else asks the hosts to tell them."""
    play(
        [
            case("weighted", tier="pinned", moves=1, tells=tells, locality=one)
            for tells in (0, -1)
            for one in ("first", "off")
        ]
    )


@pytest.mark.timeout(150)
@pytest.mark.parametrize("tier", ["device", "pinned"])
def test_rows_travel_through_the_host_between_nodes(play: Play, tier: str) -> None:
    cases = [case(one, tier=tier, locality="off") for one in ("uniform", "weighted")]
    for rank in play(cases, nodes_of_their_own):
        for stats in rank:
            assert stats["message_bytes"] == stats["remote_bytes"] > 0.2 * stats["bytes"]


@pytest.mark.gpus(2)
@pytest.mark.timeout(150)
@pytest.mark.parametrize("way", [nodes_of_their_own, over_sockets])
def test_rows_travel_by_nccl_between_nodes(play: Play, way) -> None:
    cases = [
        case("uniform", locality="off", nccl=True),
        case("weighted", locality="first", nccl=True, packed=True),
        case("sequential", locality="off", nccl=True),
        case("uniform", tier="pinned", locality="off", nccl=True),
    ]
    for rank in play(cases, way):
        for stats in rank:
            assert stats["message_bytes"] == stats["remote_bytes"] > 0
