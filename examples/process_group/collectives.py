"""Every collective of torch.distributed beside a slow reference, in plain loops over what all ranks
gave. What a rank gives can be told from its number, so each computes what all the others gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from ranks import Failed, Ranks
from torch import Tensor

# torch 2.13 gave these names to what was all_gather_into_tensor and reduce_scatter_tensor.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Pair = tuple[Tensor, Tensor]  # what came, and what the reference says


@dataclass(frozen=True)
class Given:
    """`all_[rank]`: what that rank gives, whole numbers of one dimension. Multiples of the number
    of ranks, so that means are whole, and small, so that every dtype holds the sums."""

    ranks: Ranks
    all_: list[Tensor]

    @property
    def size(self) -> int:
        return self.ranks.size

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def mine(self) -> Tensor:
        return self.all_[self.rank].clone()

    def empty(self, count: int) -> Tensor:
        return self.mine.new_empty(count)

    def roots(self) -> set[int]:
        return {0, self.size - 1}


def given(ranks: Ranks, dtype: torch.dtype, elements: int) -> Given:
    """`elements` of every rank."""
    all_ = []
    for rank in range(ranks.size):
        generator = torch.Generator().manual_seed(rank)
        values = torch.randint(1, 3, (elements,), generator=generator) * ranks.size
        all_.append(values.to(ranks.device, dtype))
    return Given(ranks, all_)


def summed(tensors: list[Tensor]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for one in tensors:
        total += one
    return total


def reduced(op: str, tensors: list[Tensor]) -> Tensor:
    result = tensors[0].clone()
    for one in tensors[1:]:
        for place in range(one.numel()) if op in ("MIN", "MAX") else ():
            chosen = min if op == "MIN" else max
            result[place] = chosen(result[place].item(), one[place].item())
        if op == "PRODUCT":
            result *= one
    if op in ("SUM", "AVG"):
        result = summed(tensors)
    return result.div(len(tensors)).to(result.dtype) if op == "AVG" else result


def broadcast(g: Given) -> Iterator[Pair]:
    for root in g.roots():
        tensor = g.mine
        dist.broadcast(tensor, group_src=root, group=g.ranks.group)
        yield tensor, g.all_[root]


def all_reduce(op: str) -> Callable[[Given], Iterator[Pair]]:
    def check(g: Given) -> Iterator[Pair]:
        small = [one // g.size for one in g.all_] if op == "PRODUCT" else g.all_
        tensor = small[g.rank].clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, op), group=g.ranks.group)
        yield tensor, reduced(op, small)

    return check


def reduce(g: Given) -> Iterator[Pair]:
    for root in g.roots():
        tensor = g.mine
        dist.reduce(tensor, group_dst=root, group=g.ranks.group)
        if g.rank == root:
            yield tensor, summed(g.all_)


def all_gather(g: Given) -> Iterator[Pair]:
    rows = [torch.empty_like(one) for one in g.all_]
    dist.all_gather(rows, g.mine, group=g.ranks.group)
    yield torch.cat(rows), torch.cat(g.all_)
    joined = torch.empty_like(torch.cat(g.all_))
    all_gather_single(joined, g.mine, group=g.ranks.group)
    yield joined, torch.cat(g.all_)


def gather(g: Given) -> Iterator[Pair]:
    for root in g.roots():
        rows = [torch.empty_like(one) for one in g.all_] if g.rank == root else None
        dist.gather(g.mine, rows, group_dst=root, group=g.ranks.group)
        if rows is not None:
            yield torch.cat(rows), torch.cat(g.all_)


def scatter(g: Given) -> Iterator[Pair]:
    for root in g.roots():
        rows = [g.all_[root] + rank for rank in range(g.size)]
        part = torch.empty_like(rows[0])
        dist.scatter(part, rows if g.rank == root else None, group_src=root, group=g.ranks.group)
        yield part, rows[g.rank]


def reduce_scatter(g: Given) -> Iterator[Pair]:
    """Rank r gives, for rank s, what it has plus s."""
    whole = torch.cat([g.mine + other for other in range(g.size)])
    part = torch.empty_like(g.mine)
    reduce_scatter_single(part, whole, group=g.ranks.group)
    yield part, summed([one + g.rank for one in g.all_])


def all_to_all(g: Given) -> Iterator[Pair]:
    """Even: a part of each rank's for every other."""
    part = max(1, g.mine.numel() // g.size)
    sent = torch.cat([g.mine[:part] + other for other in range(g.size)])
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent, group=g.ranks.group)
    yield came, torch.cat([one[:part] + g.rank for one in g.all_])


def all_to_all_uneven(g: Given) -> Iterator[Pair]:
    """Rank r sends r + s of its elements to rank s, and none to itself where both are 0."""
    counts = [min(g.rank + other, g.mine.numel()) for other in range(g.size)]
    sent = torch.cat([g.mine[:count] for count in counts])
    came = g.empty(sum(counts))
    dist.all_to_all_single(came, sent, counts, counts, group=g.ranks.group)
    yield came, torch.cat([one[:count] for one, count in zip(g.all_, counts, strict=True)])


def all_to_all_lists(g: Given) -> Iterator[Pair]:
    came = [torch.empty_like(one) for one in g.all_]
    dist.all_to_all(came, [g.mine + other for other in range(g.size)], group=g.ranks.group)
    yield torch.cat(came), torch.cat([one + g.rank for one in g.all_])


def send_and_receive(g: Given) -> Iterator[Pair]:
    """Round a ring; a rank alone has no neighbour."""
    if g.size == 1:
        return
    before, after = (g.rank - 1) % g.size, (g.rank + 1) % g.size
    came = torch.empty_like(g.mine)
    both = [
        dist.P2POp(dist.isend, g.mine, group=g.ranks.group, group_peer=after),
        dist.P2POp(dist.irecv, came, group=g.ranks.group, group_peer=before),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    yield came, g.all_[before]


def objects(g: Given) -> Iterator[Pair]:
    told: list[object] = [None] * g.size
    dist.all_gather_object(told, {"rank": g.rank, "has": g.mine.tolist()}, group=g.ranks.group)
    for rank, one in enumerate(told):
        if one != {"rank": rank, "has": g.all_[rank].tolist()}:
            raise Failed(f"all_gather_object: rank {rank} said {one}")
    said = [f"rank {g.rank}"]
    dist.broadcast_object_list(said, group_src=g.size - 1, group=g.ranks.group)
    if said != [f"rank {g.size - 1}"]:
        raise Failed(f"broadcast_object_list: the last rank said {said}")
    dist.barrier(g.ranks.group)
    yield from ()


COLLECTIVES: dict[str, Callable[[Given], Iterator[Pair]]] = {
    "broadcast": broadcast,
    **{f"all_reduce by {op}": all_reduce(op) for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX")},
    "reduce": reduce,
    "all_gather": all_gather,
    "gather": gather,
    "scatter": scatter,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "all_to_all, uneven": all_to_all_uneven,
    "all_to_all of lists": all_to_all_lists,
    "send and recv": send_and_receive,
    "objects, barrier": objects,
}
LACKS = {"gloo": {"all_reduce by AVG", "all_to_all of lists"}}  # backend -> what it refuses


def check_all(ranks: Ranks, elements: int) -> None:
    """Collective.

    Raises:
        Failed: on all ranks, where one got something else than the reference; says where.
    """
    left_out = LACKS.get(dist.get_backend(ranks.group), set())
    for name, check in COLLECTIVES.items():
        if name not in left_out:
            for dtype in (torch.float32, torch.int64):
                ranks.together(lambda: _compare(name, check, given(ranks, dtype, elements)))  # noqa: B023
    ranks.say(f"{len(COLLECTIVES) - len(left_out)} kinds of collectives are as the reference")
    if left_out:
        ranks.say(f"left out, as this backend has none: {', '.join(sorted(left_out))}")


def _compare(name: str, check: Callable[[Given], Iterator[Pair]], g: Given) -> bool:
    for came, wanted in check(g):
        if not torch.equal(came, wanted):
            place = int((came != wanted).nonzero()[0])
            raise Failed(
                f"{name} of {g.mine.dtype}: element {place} of {came.numel()} is "
                f"{came[place].item()}, and {wanted[place].item()} by the reference"
            )
    return True
