"""One rank of three of which one gives something else to a collective call than the others:
`disagreeing.py FOLDER`, started by mpirun. Writes what each case raised to FOLDER/RANK.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parents[2]))

import gear_mpi
from gear_mpi.routing import OPERATIONS
from process_group.tests.rehearsal import rehearse

ODD = 1  # the rank that gives something else
SIZE = 3
LIMIT = timedelta(seconds=60)  # errors come at once: a test that waits for it takes too long
PIECE = 4096  # bytes of a piece of a large tensor
LARGE = 30_000  # elements: more than the small paths take
Sum, Avg, Max = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX
F32, I32 = torch.float32, torch.int32


@dataclass(frozen=True)
class Case:
    """`call(group, rank, argument)`, in which `others` give the first argument and the odd rank the
    second; all are told both `values`."""

    call: Callable[[Any, int, Any], object]
    arguments: tuple[Any, Any]
    values: tuple[str, str]


def ones(count: int = 6, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.ones(count, dtype=dtype)


def all_reduce(group: Any, _: int, given: dict[str, Any]) -> None:
    dist.all_reduce(ones(given.get("n", 6), given.get("dtype", F32)), given.get("op", Sum), group)


def all_reduce_async(group: Any, _: int, op: Any) -> None:
    dist.all_reduce(ones(), op, group, async_op=True).wait()


def all_reduce_on_node(group: Any, _: int, given: tuple[int, torch.dtype, Any]) -> None:
    rehearse(group, shares_memory=True)
    dist.all_reduce(ones(given[0], given[1]), given[2], group)


def all_reduce_coalesced(group: Any, _: int, sizes: list[int]) -> None:
    tensors = [ones(size) for size in sizes]
    group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()


def compressed(group: Any, _: int, kind: str) -> None:
    gear_mpi.set_compression(kind, group)
    dist.all_reduce(ones(LARGE), group=group)


def broadcast(group: Any, _: int, given: dict[str, Any]) -> None:
    dist.broadcast(ones(given.get("n", 6), given.get("dtype", F32)), given.get("root", 0), group)


def reduce(group: Any, _: int, given: dict[str, Any]) -> None:
    tensor = ones(given.get("n", 6), given.get("dtype", F32))
    dist.reduce(tensor, given.get("root", 0), given.get("op", Sum), group)


def all_gather(group: Any, rank: int, given: tuple[list[int], torch.dtype]) -> None:
    sizes, dtype = given
    dist.all_gather([ones(n, dtype) for n in sizes], ones(sizes[rank], dtype), group)


def all_gather_flat(group: Any, _: int, given: tuple[int, torch.dtype]) -> None:
    count, dtype = given
    dist.all_gather_into_tensor(ones(SIZE * count, dtype), ones(count, dtype), group)


def gather(group: Any, rank: int, given: dict[str, Any]) -> None:
    dtype, root = given.get("dtype", F32), given.get("root", 0)
    to = [ones(6, dtype) for _ in range(SIZE)] if rank == root else None
    dist.gather(ones(given.get("n", 6), dtype), to, root, group)


def scatter(group: Any, rank: int, given: dict[str, Any]) -> None:
    dtype, root = given.get("dtype", F32), given.get("root", 0)
    of = [ones(6, dtype) for _ in range(SIZE)] if rank == root else None
    dist.scatter(ones(given.get("n", 6), dtype), of, root, group)


def reduce_scatter(group: Any, rank: int, given: tuple[list[int], torch.dtype, Any]) -> None:
    sizes, dtype, op = given
    dist.reduce_scatter(ones(sizes[rank], dtype), [ones(n, dtype) for n in sizes], op, group)


def reduce_scatter_flat(group: Any, _: int, given: tuple[int, torch.dtype, Any]) -> None:
    count, dtype, op = given
    dist.reduce_scatter_tensor(ones(count, dtype), ones(SIZE * count, dtype), op, group)


def all_to_all(group: Any, _: int, given: tuple[int, torch.dtype]) -> None:
    count, dtype = given
    dist.all_to_all(
        [ones(count, dtype) for _ in range(SIZE)],
        [ones(count, dtype) for _ in range(SIZE)],
        group,
    )


def all_to_all_rows(group: Any, _: int, given: dict[str, Any]) -> None:
    dtype, columns = given.get("dtype", F32), given.get("columns", 2)
    takes, gives = given.get("takes", [2, 2, 2]), given.get("gives", [2, 2, 2])
    to = torch.ones(sum(takes), columns, dtype=dtype)
    dist.all_to_all_single(
        to, torch.ones(sum(gives), columns, dtype=dtype), takes, gives, group=group
    )


def all_reduce_sparse(group: Any, _: int, given: dict[str, Any]) -> None:
    tensor = torch.eye(given.get("rows", 3), given.get("columns", 4), dtype=given.get("dtype", F32))
    dist.all_reduce(tensor.to_sparse(given.get("sparse_dims", 2)), group=group)


def all_reduce_of_layout(group: Any, _: int, is_sparse: bool) -> None:
    dist.all_reduce(torch.eye(3).to_sparse() if is_sparse else torch.eye(3), group=group)


def by_route_of_size(group: Any, _: int, count: int) -> None:
    gear_mpi.set_route("all_reduce>1K=gloo", group)
    dist.all_reduce(ones(count), group=group)


def by_gloo(call: Callable[[Any, int, Any], object]) -> Callable[[Any, int, Any], object]:
    def routed(group: Any, rank: int, given: Any) -> None:
        gear_mpi.set_route(",".join(f"{name}=gloo" for name in OPERATIONS), group)
        call(group, rank, given)

    routed.__name__ = f"{call.__name__} by gloo"
    return routed


def of_kind(group: Any, _: int, kind: str) -> None:
    if kind == "monitored_barrier":
        gear_mpi.monitored_barrier(group)
    elif kind == "barrier":
        dist.barrier(group)
    else:
        broadcast(group, 0, {})


def called(text: str) -> str:
    return f"called {text} "


def pair(call: Any, name: str, first: Any, second: Any, texts: tuple[str, str]) -> dict[str, Case]:
    both = (called(texts[0]), called(texts[1]))
    return {f"{call.__name__} of another {name}": Case(call, (first, second), both)}


def sent(call: Any, name: str, first: Any, second: Any, sizes: tuple[int, int]) -> dict[str, Case]:
    both = (f" {sizes[0]} bytes", f" {sizes[1]} bytes")  # of either direction
    return {f"{call.__name__} of {name}": Case(call, (first, second), both)}


def texts(form: str, *both: str) -> tuple[str, str]:
    return form.format(both[0]), form.format(both[1])


CASES: dict[str, Case] = {
    **pair(
        all_reduce,
        "dtype",
        {},
        {"dtype": I32},
        texts("all_reduce of 6 {} by SUM", "Float", "Int"),
    ),
    **pair(
        all_reduce,
        "dtype of as many bytes",
        {"dtype": torch.float16},
        {"dtype": torch.bfloat16},
        texts("all_reduce of 6 {} by SUM", "Half", "BFloat16"),
    ),
    **pair(all_reduce, "size", {}, {"n": 7}, texts("all_reduce of {} Float by SUM", "6", "7")),
    **pair(
        all_reduce,
        "size, of large ones",
        {"n": LARGE},
        {"n": LARGE + 1},
        texts("all_reduce of {} Float by SUM", str(LARGE), str(LARGE + 1)),
    ),
    **pair(all_reduce, "size, of none", {}, {"n": 0}, texts("all_reduce of {} Float", "6", "0")),
    **pair(
        all_reduce, "reduction", {}, {"op": Avg}, texts("all_reduce of 6 Float by {}", "SUM", "AVG")
    ),
    **pair(
        all_reduce_async, "reduction", Sum, Max, texts("all_reduce of 6 Float by {}", "SUM", "MAX")
    ),
    **pair(
        all_reduce_on_node,
        "size",
        (LARGE, F32, Sum),
        (LARGE + 1, F32, Sum),
        texts("all_reduce of {} Float by SUM, by memory of the node", "30000", "30001"),
    ),
    **pair(
        all_reduce_on_node,
        "reduction",
        (LARGE, F32, Sum),
        (LARGE, F32, Avg),
        texts("all_reduce of 30000 Float by {}, by memory of the node", "SUM", "AVG"),
    ),
    **pair(
        all_reduce_on_node,
        "way",
        (17_000, F32, Sum),
        (16_000, F32, Sum),
        texts(
            "all_reduce of {}", "17000 Float by SUM, by memory of the node", "16000 Float by SUM"
        ),
    ),
    **pair(
        all_reduce_coalesced,
        "number of tensors",
        [6, 7],
        [6, 7, 8],
        texts("all_reduce of ? Float by SUM, tensor ? of {}", "2", "3"),  # either comes first
    ),
    **pair(
        all_reduce_coalesced,
        "order",
        [6, 7],
        [7, 6],
        texts("all_reduce of {} Float by SUM, tensor ? of 2", "6", "7"),
    ),
    **pair(
        compressed,
        "compression",
        "none",
        "bf16",
        (
            "all_reduce of 30000 Float by SUM",
            "all_reduce of 30000 Float by SUM, compressed to bf16",
        ),
    ),
    **pair(
        broadcast,
        "dtype",
        {},
        {"dtype": I32},
        texts("broadcast of 6 {} from rank 0", "Float", "Int"),
    ),
    **pair(broadcast, "size", {}, {"n": 7}, texts("broadcast of {} Float from rank 0", "6", "7")),
    **pair(
        broadcast,
        "size, of large ones",
        {"n": 2 * LARGE},
        {"n": LARGE},
        texts("broadcast of {} Float from rank 0", "60000", "30000"),
    ),
    **pair(
        broadcast, "root", {}, {"root": 1}, texts("broadcast of 6 Float from rank {}", "0", "1")
    ),
    **pair(
        reduce,
        "dtype",
        {},
        {"dtype": I32},
        texts("reduce of 6 {} by SUM to rank 0", "Float", "Int"),
    ),
    **pair(reduce, "size", {}, {"n": 7}, texts("reduce of {} Float by SUM to rank 0", "6", "7")),
    **pair(
        reduce,
        "reduction",
        {},
        {"op": Max},
        texts("reduce of 6 Float by {} to rank 0", "SUM", "MAX"),
    ),
    **pair(reduce, "root", {}, {"root": 1}, texts("reduce of 6 Float by SUM to rank {}", "0", "1")),
    **pair(
        all_gather,
        "dtype",
        ([3, 3, 3], F32),
        ([3, 3, 3], I32),
        texts("all_gather of 9 {}", "Float", "Int"),
    ),
    **pair(
        all_gather,
        "size",
        ([3, 3, 3], F32),
        ([4, 4, 4], F32),
        texts("all_gather of {} Float", "9", "12"),
    ),
    **pair(
        all_gather,
        "size of a share",
        ([3, 4, 5], F32),
        ([5, 4, 3], F32),
        ("all_gather of 12 Float", "all_gather of 12 Float, in other shares,"),
    ),
    **pair(
        all_gather_flat, "dtype", (3, F32), (3, I32), texts("all_gather of 9 {}", "Float", "Int")
    ),
    **pair(all_gather_flat, "size", (3, F32), (4, F32), texts("all_gather of {} Float", "9", "12")),
    **pair(gather, "dtype", {}, {"dtype": I32}, texts("gather of {} to rank 0", "Float", "Int")),
    **pair(gather, "root", {}, {"root": 1}, texts("gather of Float to rank {}", "0", "1")),
    **sent(gather, "more than is expected", {}, {"n": 7}, (28, 24)),
    **sent(gather, "nothing where something is expected", {}, {"n": 0}, (0, 24)),
    **pair(
        scatter, "dtype", {}, {"dtype": I32}, texts("scatter of {} from rank 0", "Float", "Int")
    ),
    **pair(scatter, "root", {}, {"root": 1}, texts("scatter of Float from rank {}", "0", "1")),
    **sent(scatter, "less than is expected", {}, {"n": 7}, (24, 28)),
    **sent(scatter, "something where nothing is expected", {}, {"n": 0}, (24, 0)),
    **pair(
        reduce_scatter,
        "dtype",
        ([2, 2, 2], F32, Sum),
        ([2, 2, 2], I32, Sum),
        texts("reduce_scatter of 6 {} by SUM", "Float", "Int"),
    ),
    **pair(
        reduce_scatter,
        "reduction",
        ([2, 2, 2], F32, Sum),
        ([2, 2, 2], F32, Avg),
        texts("reduce_scatter of 6 Float by {}", "SUM", "AVG"),
    ),
    **pair(
        reduce_scatter,
        "size of a share",
        ([1, 2, 3], F32, Sum),
        ([3, 2, 1], F32, Sum),
        ("reduce_scatter of 6 Float by SUM", "reduce_scatter of 6 Float by SUM, in other shares,"),
    ),
    **pair(
        reduce_scatter_flat,
        "dtype",
        (2, F32, Sum),
        (2, I32, Sum),
        texts("reduce_scatter of 6 {} by SUM", "Float", "Int"),
    ),
    **pair(
        reduce_scatter_flat,
        "size",
        (2, F32, Sum),
        (3, F32, Sum),
        texts("reduce_scatter of {} Float by SUM", "6", "9"),
    ),
    **pair(
        reduce_scatter_flat,
        "reduction",
        (2, F32, Sum),
        (2, F32, Max),
        texts("reduce_scatter of 6 Float by {}", "SUM", "MAX"),
    ),
    **pair(all_to_all, "dtype", (2, F32), (2, I32), texts("all_to_all of {}", "Float", "Int")),
    **sent(all_to_all, "other sizes", (2, F32), (3, F32), (12, 8)),
    **pair(all_to_all_rows, "dtype", {}, {"dtype": I32}, texts("all_to_all of {}", "Float", "Int")),
    **sent(all_to_all_rows, "other columns", {}, {"columns": 3}, (24, 16)),
    **sent(
        all_to_all_rows,
        "a split that nobody takes",
        {"takes": [2, 0, 2]},
        {"gives": [2, 2, 2], "takes": [2, 2, 2]},
        (16, 0),
    ),
    **sent(
        all_to_all_rows,
        "a split that nobody gives",
        {},
        {"gives": [2, 2, 0]},
        (0, 16),
    ),
    **sent(
        all_to_all_rows,
        "whole pieces of which one is expected",
        {"gives": [512, 512, 512], "takes": [512, 512, 512]},
        {"gives": [512, 512, 1024], "takes": [512, 512, 512]},
        (PIECE, 0),
    ),
    **pair(
        of_kind,
        "kind",
        "barrier",
        "broadcast",
        ("barrier", "broadcast of 6 Float from rank 0"),
    ),
    **pair(of_kind, "barrier", "barrier", "monitored_barrier", ("barrier", "monitored_barrier")),
    **pair(
        all_reduce_sparse,
        "dtype",
        {},
        {"dtype": torch.float64},
        texts("all_reduce of 12 sparse {} by SUM", "Float", "Double"),
    ),
    **pair(
        all_reduce_sparse,
        "size",
        {},
        {"rows": 4},
        texts("all_reduce of {} sparse Float by SUM", "12", "16"),
    ),
    **pair(
        all_reduce_sparse,
        "shape of as many elements",
        {},
        {"rows": 4, "columns": 3},
        (
            "all_reduce of 12 sparse Float by SUM",
            "all_reduce of 12 sparse Float by SUM, of another shape,",
        ),
    ),
    **pair(
        all_reduce_sparse,
        "number of sparse dimensions",
        {},
        {"sparse_dims": 1},
        (
            "all_reduce of 12 sparse Float by SUM",
            "all_reduce of 12 sparse Float by SUM, of another shape,",
        ),
    ),
    **pair(
        all_reduce_of_layout,
        "layout",
        False,
        True,
        texts("all_reduce of 9 {} by SUM", "Float", "sparse Float"),
    ),
    **pair(
        by_route_of_size,
        "route",
        200,
        300,
        texts("all_reduce of {}", "200 Float by SUM", "300 Float by SUM, by gloo"),
    ),
    **pair(
        by_gloo(all_reduce),
        "dtype of as many bytes",
        {"dtype": torch.float16},
        {"dtype": torch.bfloat16},
        texts("all_reduce of 6 {} by SUM, by gloo", "Half", "BFloat16"),
    ),
    **pair(
        by_gloo(all_reduce),
        "size",
        {},
        {"n": 7},
        texts("all_reduce of {} Float by SUM, by gloo", "6", "7"),
    ),
    **pair(
        by_gloo(all_reduce_async),
        "reduction",
        Sum,
        Max,
        texts("all_reduce of 6 Float by {}, by gloo", "SUM", "MAX"),
    ),
    **pair(
        by_gloo(all_reduce_coalesced),
        "order",
        [6, 7, 8],
        [6, 8, 7],
        (
            "all_reduce of 6 Float by SUM, by gloo, the first of 3 tensors",
            "all_reduce of 6 Float by SUM, by gloo, the first of 3 tensors, with others behind it,",
        ),
    ),
    **pair(
        by_gloo(all_reduce_sparse),
        "dtype",
        {},
        {"dtype": torch.float64},
        texts("all_reduce of 12 sparse {} by SUM, by gloo", "Float", "Double"),
    ),
    **pair(
        by_gloo(broadcast),
        "root",
        {},
        {"root": 1},
        texts("broadcast of 6 Float from rank {}, by gloo", "0", "1"),
    ),
    **pair(
        by_gloo(reduce),
        "root",
        {},
        {"root": 1},
        texts("reduce of 6 Float by SUM to rank {}, by gloo", "0", "1"),
    ),
    **pair(
        by_gloo(all_gather_flat),
        "dtype of as many bytes",
        (3, F32),
        (3, I32),
        texts("all_gather of 9 {}, by gloo", "Float", "Int"),
    ),
    **pair(
        by_gloo(gather),
        "size",
        {},
        {"n": 7},
        texts("gather of {} Float to rank 0, by gloo", "6", "7"),
    ),
    **pair(
        by_gloo(scatter),
        "dtype of as many bytes",
        {},
        {"dtype": I32},
        texts("scatter of 6 {} from rank 0, by gloo", "Float", "Int"),
    ),
    **pair(
        by_gloo(reduce_scatter_flat),
        "reduction",
        (2, F32, Sum),
        (2, F32, Max),
        texts("reduce_scatter of 6 Float by {}, by gloo", "SUM", "MAX"),
    ),
    **pair(
        by_gloo(all_to_all),
        "dtype of as many bytes",
        (2, F32),
        (2, I32),
        texts("all_to_all of {}, by gloo", "Float", "Int"),
    ),
    **pair(
        by_gloo(of_kind),
        "kind",
        "barrier",
        "broadcast",
        ("barrier, by gloo", "broadcast of 6 Float from rank 0, by gloo"),
    ),
}


def main() -> None:
    dist.init_process_group(gear_mpi.NAME)
    rank = dist.get_rank()
    meeting = dist.new_group(backend="gloo")
    small = gear_mpi.Options(segment_bytes=PIECE)
    said = {}
    for name, case in CASES.items():
        group = dist.new_group(backend=gear_mpi.NAME, timeout=LIMIT, pg_options=small)
        said[name] = ""
        try:
            case.call(group, rank, case.arguments[rank == ODD])
        except RuntimeError as error:
            said[name] = str(error).splitlines()[0]
        dist.barrier(group=meeting)
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(said))
    dist.barrier(group=meeting)


if __name__ == "__main__":
    main()
