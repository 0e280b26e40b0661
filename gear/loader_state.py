"""The state of a loader: its fields, and whether a loader may continue from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gear.arguments import check_count, check_flag
from gear.errors import InvalidArgument

STATE_VERSION = 2
GIVE = "give what state_dict() returned"
MOST = (1 << 64) - 1


def plain_state(found: dict[str, Any]) -> dict[str, Any]:
    """What the core says of a loader, in ints, floats, strings and bytes."""
    for batch in found["pending"]:
        data = batch.pop("data")
        if not batch["epoch_end"]:  # torch.load, as it is told to, reads no empty bytes
            batch["data"] = data.tobytes()
    return found


def checked_state(state: object, ranks: int) -> dict[str, Any]:
    """The state as the core takes it, each value of its type and in its range.

    Args:
        ranks: of the loader's group, for a state that says nothing of ranks.

    Raises:
        InvalidArgument: names the field, its value and what is allowed.
    """
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"[loader] loader state {state!r}: {GIVE}")
    version = _field(state, "version")
    if version != STATE_VERSION:
        raise InvalidArgument(
            f"[loader] loader state of version {version!r}: this GEAR reads version "
            f"{STATE_VERSION}; a state goes with the GEAR that saved it, and a new loader goes on "
            "over the saved buffer without one"
        )
    if not isinstance(state.get("pending"), list | tuple):
        raise InvalidArgument(
            f"[loader] loader state with pending {state.get('pending')!r}: a list of batches is "
            f"allowed; {GIVE}"
        )
    return {
        **state,
        "seed": _count(state, "seed", least=-(1 << 63)),
        "ranks": _count(state, "ranks", least=1) if "ranks" in state else ranks,
        "batch_size": _count(state, "batch_size", least=1),
        **{key: _count(state, key) for key in ("draws", "epoch", "size")},
        "beta": _beta(state),
        "pending": [_batch(one, f" in batch {i}") for i, one in enumerate(state["pending"])],
    }


def check_same_loader(found: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises InvalidArgument where the state is of another kind of loader, or of another buffer."""
    for key, value in own.items():
        if key != "buffer" and found.get(key) != value:
            raise InvalidArgument(
                f"[loader] loader state with {key} {found.get(key)!r}: this loader takes "
                f"{value!r}; make it with the options it was saved with"
                + (", over the buffer that was saved with it" if key == "schema" else "")
            )
    if found["sampler"]["policy"] == "sequential" and found["draws"] > found["size"]:
        raise InvalidArgument(
            f"[loader] loader state with draws {found['draws']} in an epoch of size "
            f"{found['size']}: {found['size']} or less is allowed; {GIVE}"
        )


def check_same_buffer(found: Mapping[str, Any], identity: int) -> None:
    """Raises InvalidArgument where the state was saved over another buffer than this one.

    One that was saved while its buffer was empty shows nothing of it.
    """
    saved = _count(found, "buffer", most=(1 << 32) - 1)
    if saved not in (0, identity):
        here = "nothing was ever stored in this one"
        if identity:
            here = f"this buffer is {identity:08x}"
        raise InvalidArgument(
            f"[loader] loader state with buffer {saved:08x}: {here}; load the buffer that was "
            "saved with the state, or fill one with the same steps, before load_state_dict"
        )


def drawn_again(found: Mapping[str, Any], *, ranks: int, batch_size: int) -> dict[str, Any]:
    """The state of a loader over another number of ranks, before it drew what is in flight."""
    before, now = found["ranks"] * found["batch_size"], ranks * batch_size
    if now != before:
        raise InvalidArgument(
            f"[loader] loader state with {before} items in a batch of all {found['ranks']} "
            f"rank(s): this loader has {now}, {batch_size} on each of {ranks}; make it with as "
            "many items in all"
        )
    drawn = [one["before"] for one in found["pending"]]
    position = dict(zip(("draws", "epoch", "size"), drawn[0], strict=True)) if drawn else {}
    return {**found, **position, "batch_size": batch_size, "pending": []}


def _field(state: Mapping[str, Any], key: str, where: str = "") -> Any:
    try:
        return state[key]
    except (KeyError, TypeError, IndexError):
        raise InvalidArgument(f"[loader] loader state{where} lacks {key!r}: {GIVE}") from None


def _count(
    state: Mapping[str, Any], key: str, where: str = "", *, least: int = 0, most: int = MOST
) -> int:
    label = f"[loader] loader state{where}: {key}"
    return check_count(label, _field(state, key, where), least=least, most=most)


def _beta(state: Mapping[str, Any]) -> float:
    beta = _field(state, "beta")
    number = isinstance(beta, int | float) and not isinstance(beta, bool)
    if not (number and 0 <= beta <= 1):
        raise InvalidArgument(
            f"[loader] loader state: beta {beta!r}: a number from 0 to 1 is allowed"
        )
    return float(beta)


def _batch(one: Any, where: str) -> dict[str, Any]:
    if not isinstance(one, Mapping):
        raise InvalidArgument(f"[loader] loader state{where}: {one!r}: {GIVE}")
    label = f"[loader] loader state{where}"
    before = _counts(one, "before", where)
    if len(before) != 3:
        raise InvalidArgument(f"{label}: before {before!r}: three counts are allowed; {GIVE}")
    epoch_end = check_flag(f"{label}: epoch_end", _field(one, "epoch_end", where))
    data = b"" if epoch_end else _field(one, "data", where)
    if not isinstance(data, bytes | bytearray):
        raise InvalidArgument(f"{label}: data {data!r}: bytes are allowed; {GIVE}")
    draws, uses = _count(one, "draws", where), _counts(one, "uses", where)
    if len(uses) > draws:
        raise InvalidArgument(
            f"{label}: {len(uses)} uses of {draws} draws: one or none a draw is allowed; {GIVE}"
        )
    return {
        "before": tuple(before),
        "epoch_end": epoch_end,
        "items": _count(one, "items", where),
        "rows": _counts(one, "rows", where),
        "draws": draws,
        "data": np.frombuffer(data, np.uint8),
        "uses": uses,
    }


def _counts(one: Mapping[str, Any], key: str, where: str) -> list[int]:
    values = _field(one, key, where)
    label = f"[loader] loader state{where}: {key}"
    if not isinstance(values, list | tuple):
        raise InvalidArgument(f"{label} {values!r}: a list of counts is allowed; {GIVE}")
    return [check_count(label, value, least=0, most=MOST) for value in values]
