"""What the GPU paths are required to reach, and whether a report's figures do."""

from __future__ import annotations

from typing import Any

MIB = 1 << 20


class Limits:
    """The lines of the limits binary, looked up by what they are of."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines

    def gather(self, what: str, row_bytes: int, batch_bytes: int, order: str = "") -> float | None:
        """GB/s of the best bare kernel for these rows and about this batch; None: not measured."""
        found = [
            line["gb_per_s"]
            for line in self.lines
            if line["what"] == what
            and line.get("row_bytes") == row_bytes
            and 0.9 < line["batch_bytes"] / batch_bytes < 1.1
            and line["order"] in (order or line["order"])
        ]
        return max(found, default=None)


def share(value: float | None, limit: float | None) -> float | None:
    return value / limit if value and limit else None


def add_shares(report: dict[str, Any], limits: Limits) -> None:
    """Writes beside every row what the bare hardware gives for it."""
    for row in report.get("device", []):
        limit = limits.gather("device_gather", row["row_bytes"], row["batch_bytes"])
        row["limit_gb_per_s"] = limit
        row["share_of_limit"] = share(row["gb_per_s"], limit)
        row["gather_share_of_limit"] = share(row.get("gather_gb_per_s"), limit)
    for row in report.get("pinned", []):
        size = row["row_bytes"], row["batch_bytes"]
        row["limit_gb_per_s"] = limits.gather("zero_copy", *size)
        row["naive_gb_per_s"] = limits.gather("zero_copy", *size, order="random")
        row["share_of_limit"] = share(row["gb_per_s"], row["limit_gb_per_s"])
        row["gather_share_of_limit"] = share(row.get("gather_gb_per_s"), row["limit_gb_per_s"])


def targets(report: dict[str, Any]) -> list[dict[str, Any]]:
    """name, sign, required, measured and met, which is None where there is nothing to judge; where
    the requirement is absolute, limit is what the bare hardware gave in the same run."""
    rows: list[dict[str, Any]] = []

    def require(
        name: str, sign: str, required: float, measured: float | None, limit: float | None = None
    ) -> None:
        met = None
        if measured and not report["machine"]["rehearsal"]:  # 0: the profiler saw no kernel
            met = measured >= required if sign == ">=" else measured <= required
        row = {"name": name, "sign": sign, "required": required, "measured": measured, "met": met}
        rows.append(row | ({"limit": limit} if limit else {}))

    for row in report.get("device", []):
        if row["row_bytes"] >= 256 and row["batch_bytes"] > 200 * MIB:
            name = f"device {row['row_bytes']} B: gather kernel / bare gather"
            require(name, ">=", 0.90, row["gather_share_of_limit"])
        if row["row_bytes"] == 256 and row["batch_bytes"] > 200 * MIB:
            require("device 256 B: end to end / bare gather", ">=", 0.80, row["share_of_limit"])
    small = report.get("small")
    if small:
        require(
            "256 transitions: us of GPU time", "<=", 25, small["gpu_span_us"] or small["gpu_us"]
        )
        require("256 transitions: batches/s from Python", ">=", 20_000, small["batches_per_s"])
    for row in report.get("turns", []):
        if row["batch_size"] == 256 and row["sampler"] == "weighted":
            require("256 by priority, with update: us a turn", "<=", 35, row["wall_us"])
    by_hand = {row["row_bytes"]: row["gb_per_s"] for row in report.get("framework", [])}
    for row in report.get("pinned", []):
        if row["asked"] != "zero_copy":
            continue
        size, batch = row["row_bytes"], row["batch_bytes"] // MIB
        name = f"pinned {size} B, {batch} MiB, prefetch {row['prefetch']}"
        if size >= 4096:
            require(f"{name}: share of zero-copy", ">=", 0.95, row["share_of_limit"])
        elif size >= 1024:
            require(f"{name}: share of zero-copy", ">=", 0.90, row["share_of_limit"])
        else:
            require(f"{name}: GB/s", ">=", 28, row["gb_per_s"], row["limit_gb_per_s"])
            ratio = share(row["gb_per_s"], by_hand.get(size))
            if batch < 100:
                require(f'{name}: times tensor[idx].to("cuda")', ">=", 8, ratio)
    for row in report.get("weighted", []):
        name = f"weighted, {row['leaves']:.0e} leaves: us of 4096 draws and updates"
        require(name, "<=", 60, row["draws_and_updates_us"])
    for row in report.get("transformer", []):
        name = f"transformer, batch {row['batch_size']}: share of a step waiting for data"
        require(name, "<=", 0.01, row["wait_share"])
    return rows
