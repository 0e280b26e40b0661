"""What the ranks of a group send for one global batch, round by round: closed formulas.

Of uniform draws, from shards that are equal, in memory that the ranks of a node map. P ranks, g a
node on m nodes; B items a rank, so that n = P B are drawn. docs/emulation.md says what each round
is; the sizes here are those of csrc/group: Agreement::Ready, parcel_format.h, plan::PackedRows.

    off     draw i is consumed by rank i / B: by its owner with chance 1 / P, on its node g / P
    first   a rank gives what it draws beyond B, to its node first: half the mean deviation of
            binomial numbers, of ranks for all that moves, of nodes for what leaves them
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from gear.arguments import check_count
from gear.emu.models.shape import Shape
from gear.errors import InvalidArgument

LOCALITIES = ("first", "off")
READY = 24 + 16  # a rank's word and what it offers
COUNT = 8
HEADER = 24
ITEM = 8 + 4 + 4 + 8  # id, probability, place, the window's piece
RUN = 12  # where an item's row lies, for those who map it
RUNS = 4  # how many there are, and the first of each part of the items
PART_ITEMS = 4096
ALIGN = 16  # of each column's rows in a message


@dataclass(frozen=True)
class Batch:
    """What is drawn.

    Args:
        shape: of the ranks.
        items: of each rank.
        row_bytes: of an item.
        locality: one of LOCALITIES.
    """

    shape: Shape
    items: int
    row_bytes: int
    locality: str = "first"

    def __post_init__(self) -> None:
        check_count("[emu] items of a batch", self.items)
        check_count("[emu] bytes of a row", self.row_bytes)
        if self.locality not in LOCALITIES:
            raise InvalidArgument(
                f"[emu] locality {self.locality!r}: {' and '.join(map(repr, LOCALITIES))} are"
                " allowed"
            )

    @property
    def draws(self) -> int:
        """Of all ranks."""
        return self.shape.ranks * self.items


@dataclass(frozen=True)
class Moved:
    """Items that another rank consumes than holds them.

    Args:
        near: between ranks of one node.
        far: between nodes.
        near_pairs: how many of its ordered pairs of ranks have any.
        far_pairs: likewise.
    """

    near: float = 0.0
    far: float = 0.0
    near_pairs: float = 0.0
    far_pairs: float = 0.0


@dataclass(frozen=True)
class Round:
    """What goes from ranks to others.

    Args:
        name: agreement, counts or parcels.
        call: of a transport, as its Traffic names it.
        messages: from a rank to another, of all ranks together: of an allgather ceil(log2 P) a
            rank, by which bytes are passed on; of an exchange whose sizes are known, of those that
            are not empty.
        bytes: likewise.
    """

    name: str
    call: str
    messages: float
    bytes: float


def rounds(batch: Batch, moved: Moved) -> tuple[Round, ...]:
    """Of a batch in which these items move. Exact for whole numbers of them, but where rows of a
    message are filled up to 16 bytes: then the mean; and with locality off where every rank has
    drawn something of each, which is as good as sure."""
    pairs = batch.shape.ranks * (batch.shape.ranks - 1)
    if not pairs:
        return ()
    passed_on = batch.shape.ranks * passes(batch.shape.ranks)
    parcels = parcels_of(batch, moved, pairs)
    return (
        Round("agreement", "allgather", passed_on, pairs * READY),
        Round("counts", "allgather", passed_on, pairs * COUNT),
        Round("parcels", "exchange", parcels, parcel_bytes(batch, moved, parcels)),
    )


def parcels_of(batch: Batch, moved: Moved, pairs: float) -> float:
    """Messages: of those pairs of ranks that have items, or of all `pairs` where counts do not tell
    which have."""
    return pairs if batch.locality == "off" else moved.near_pairs + moved.far_pairs


def passes(ranks: int) -> int:
    """Messages of a rank in an allgather, each of twice as many ranks' bytes as the one before."""
    return (ranks - 1).bit_length()


def parcel_bytes(batch: Batch, moved: Moved, parcels: float) -> float:
    """Of so many parcels, with the rows that go to other nodes, each message's filled up to a
    multiple of 16."""
    parts = math.ceil(moved.near / max(1.0, moved.near_pairs) / PART_ITEMS)
    near = moved.near * (ITEM + RUN) + moved.near_pairs * (RUNS + RUNS * parts)
    filling = (ALIGN - math.gcd(ALIGN, batch.row_bytes)) / 2
    far = moved.far * (ITEM + batch.row_bytes) + moved.far_pairs * filling
    return parcels * HEADER + near + far


def expected(batch: Batch) -> Moved:
    """On the mean; of pairs with locality first, at most."""
    shape, n = batch.shape, batch.draws
    ranks, per_node = shape.ranks, shape.per_node
    if batch.locality == "off":
        reached = 1 - (1 - 1 / ranks) ** batch.items
        return Moved(
            near=n * (per_node - 1) / ranks,
            far=n * (ranks - per_node) / ranks,
            near_pairs=ranks * (per_node - 1) * reached,
            far_pairs=ranks * (ranks - per_node) * reached,
        )
    far = shape.nodes * mean_deviation(n, shape.nodes) / 2
    near = ranks * mean_deviation(n, ranks) / 2 - far
    return Moved(
        near,
        far,
        near_pairs=min(near, float(ranks - shape.nodes)),
        far_pairs=min(far, float(ranks - 1)),
    )


def most_of_a_rank(batch: Batch) -> Moved:
    """What the rank gives or gets that has most of either, about."""
    shape = batch.shape
    ranks, per_node = shape.ranks, shape.per_node
    above = most_of(2 * ranks) * deviation(batch.draws, ranks)  # of its draws, beside their mean
    if batch.locality == "off":
        drawn = (batch.items + above) / ranks
        reached = 1 - (1 - 1 / ranks) ** batch.items
        return Moved(
            near=drawn * (per_node - 1),
            far=drawn * (ranks - per_node),
            near_pairs=(per_node - 1) * reached,
            far_pairs=(ranks - per_node) * reached,
        )
    far = min(above, most_of(2 * shape.nodes) * deviation(batch.draws, shape.nodes))
    lacked = max(1.0, mean_deviation(batch.draws, ranks))  # by a rank that it goes to
    return Moved(
        near=above - far,
        far=far,
        near_pairs=min(above - far, float(per_node - 1)),
        far_pairs=min(far, 1 + far / lacked, float(ranks - per_node)),
    )


def bytes_deviation(batch: Batch) -> dict[str, float]:
    """The standard deviation of one batch's bytes, by round, at most; of headers, none.

    By normal numbers in place of binomial ones.
    """
    shape, n = batch.shape, batch.draws
    mapped = ITEM + RUN if shape.per_node > 1 else ITEM  # of an item that moves inside a node
    near, far = mapped, ITEM + batch.row_bytes
    if batch.locality == "off":
        p_near = (shape.per_node - 1) / shape.ranks
        p_far = (shape.ranks - shape.per_node) / shape.ranks
        mean = p_near * near + p_far * far
        parcels = math.sqrt(n * (p_near * near**2 + p_far * far**2 - mean**2))
    else:
        parcels = near * surplus_deviation(n, shape.ranks)
        parcels += abs(far - near) * surplus_deviation(n, shape.nodes)
    return {"agreement": 0.0, "counts": 0.0, "parcels": parcels}


def deviation(draws: int, parts: int) -> float:
    """The standard deviation of the draws that fall on one of so many equal parts."""
    return math.sqrt(draws / parts * (1 - 1 / parts))


def mean_deviation(draws: int, parts: int) -> float:
    """The mean of their distance from draws / parts, a whole number (de Moivre's formula)."""
    if parts == 1:
        return 0.0
    mean = draws // parts
    log = (
        math.log(2)
        + (draws - mean) * math.log1p(-1 / parts)
        - (mean + 1) * math.log(parts)
        + math.lgamma(draws + 1)
        - math.lgamma(mean + 1)
        - math.lgamma(draws - mean)
    )
    return math.exp(log)


def surplus_deviation(draws: int, parts: int) -> float:
    """The standard deviation of all that parts have above draws / parts: half the sum of the
    distances of normal numbers, each pair of which has the correlation -1 / (parts - 1)."""
    if parts == 1:
        return 0.0
    variance = deviation(draws, parts) ** 2
    by = -1 / (parts - 1)
    common = 2 / math.pi * (math.sqrt(1 - by**2) + by * math.asin(by) - 1)
    of_all = parts * (1 - 2 / math.pi) + parts * (parts - 1) * common
    return math.sqrt(variance * of_all / 4)


def most_of(parts: int) -> float:
    """The mean of the largest of so many normal numbers, in deviations (Blom's formula)."""
    return max(0.0, NormalDist().inv_cdf((parts - 0.375) / (parts + 0.25)))
