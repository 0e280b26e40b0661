"""Names that a reshape of the core took away do not come back, beside what took their place.

    python tools/check_old_names.py [ROOT]

Exit code 1, and a line each, where one is found in the core, its tests or its benchmarks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# A pattern of the old name, and what does its work now.
OLD_NAMES = {
    r"\bUnspentSteps\b|\bunspent_steps\b|\bnth_unspent\b": "store::Drawable says what may be drawn",
    r"\bnth_anchor\b": "Drawable::nth",
    r"\bstore::Offers?\b|\bclass Offers?\b|\boffer_of\b|\boffers\(\)|\bOffered\b": (
        "Drawable and Drawables; an offer is the message to other ranks"
    ),
    r"\bpage\w*(?:\.|->)spent\b": "the bits of a Drawable, and DrawCounts",
    r"\bChangeLog\b|\bchange_log\b|\bpage_changes\b|\bepisode_weight_changes\b": "store::Dirty",
    r"\bview\w*(?:\.|->)anchors\b": "DeviceDrawable::counts",
    r"\bopen_episode\b|\bkEpisodesBefore\b": (
        "an episode gets its slot with its first page: Index::attach_page"
    ),
    r"\bmake_(?:group_|device_)?sampler\b|\b(?:Equal|Weighted)Items\b|\bselect::Draws\b": (
        "a law is a space and a chance: select::Law, Space, Chance"
    ),
    r"\b(?:path|tier|dtype)_name\b|\bparse_(?:tier|dtype|locality)\b": (
        "a table of names: kPaths, kTiers, kDTypes, kLocalities"
    ),
    r"\"\[(?:collect|ingest|select|store)\]": (
        "users know [loader], [writer], [sampler] and [buffer]"
    ),
    r"\bSavedState\b|\bOpenShard\b|\bFileIndex\b": "IndexState, Slots, and ShardFile",
    r"\bweight_limit\b|\bkMaxWeight\b|\bkWeightFractionBits\b|\bthrow_too_heavy\b": (
        "weights follow the largest priority: store::WeightScale"
    ),
    r"\bpriority_units\b": "store::summed",
    r"\braise_max_priority\b": "Index::raise_largest",
    r"\bkNoColumn\b|\bDerived::kNone\b": "an output is a source: plan::Output",
    r"\bvisit_s\b|\bordered_bytes_per_s\b": "three numbers: link::LinkModel",
    r"\bstd::vector<std::function<void\(\)>>(?= \w+_;)": (
        "the intake of a shard holds records: store::Intake"
    ),
}
ROOMS = ("csrc", "tests", "benchmarks")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def findings(root: Path) -> Iterator[str]:
    for path in sorted(path for room in ROOMS for path in (root / room).rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            for pattern, instead in OLD_NAMES.items():
                if found := re.search(pattern, line):
                    where = f"{path.relative_to(root).as_posix()}:{number}"
                    yield f"{where}: {found[0]} is gone: {instead}"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    found = list(findings(root))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
