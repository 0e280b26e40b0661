"""Appending the experience of several environments in one call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal, get_args

from gear import _core
from gear.arguments import check_count, check_flag, check_text, check_timeout
from gear.errors import InvalidArgument
from gear.frameworks import stream_of
from gear.in_process import InProcess
from gear.schema import Schema

Autoreset = Literal["next_step", "same_step", "disabled"]
MODES: tuple[Autoreset, ...] = get_args(Autoreset)
DEFAULT_FINAL = "obs"


class VectorWriter(InProcess, _core.VectorWriter):
    """Appends the steps of N environments, each to an episode of its own; made by
    ``ReplayBuffer.writer(envs)``.

    ``append(*, terminated=None, truncated=None, final=None, mask=None, priority=None, **columns)``
    adds a step of each environment: every column ``[N, *shape]``, flags bool ``[N]``, in NumPy
    arrays or CPU tensors with DLPack, as `Writer` takes them, or in arrays on a GPU (below). A flag
    ends the episode of its environment with this step; with both, it has terminated. A bool column
    ``terminated`` or ``truncated`` is stored from the flag, which every call then gives. The next
    step of the environment opens another episode. ``mask``: the environments that take part; what
    lies in the rows of others, flags and priorities among them, is of no account. ``priority``: a
    number, or ``[N]``; None stands for the largest so far. Flags and ``mask`` are copied as the
    call begins.

    How an environment shows the observation after its last step is a matter of its autoreset mode,
    as `Gymnasium <https://gymnasium.farama.org/api/vector/>`_ names them:

    - ``"next_step"``: the call behind an end resets the environment. The row that is appended then
      is no step: its columns ``final`` (of `ReplayBuffer.writer`) become the closing step, and the
      rest of it is dropped. Until then the episode counts as open, and ``ended`` says how it ends.
    - ``"same_step"``, ``"disabled"``: the last observation comes with the flag, as
      ``final={"obs": infos.get("final_obs")}``: ``[N, *shape]``, or an object array of N, of which
      only the rows of environments that end are read. Without it (or with None) the episode has no
      closing step.

    Arrays on a GPU, by DLPack, have the columns' own dtypes (``priority``: float32 ``[N]``). Where
    the buffer is in the memory of that GPU, arrays of torch and CuPy may be overwritten by what is
    put on their current stream next, and ``append`` does not wait for them; it does for arrays that
    something may overwrite on a stream that is not known. With flags, ``mask`` or ``priority``
    there, a call is stored by the next call of the writer, or by `flush`: that waits for these,
    and raises what is wrong with them, in which case it takes nothing of its own arrays.
    `end_episode`, `close`, ``episodes`` and ``ended`` flush. Such a call takes no object array as
    ``final``, and of arrays on the host it checks all rows. Other tiers fetch arrays, and wait.

    Everything is checked before anything is stored. ``append`` raises InvalidArgument for a
    missing, unknown or misshapen column or flag and for a bad value; OutOfMemory if so many
    episodes cannot be open at once, since each keeps a page; TimeoutError if the rate limit holds
    it up for longer than ``timeout_s``: then the steps of the first environments are stored, and
    the message says how many. Where no page is left for a closing step, the call stores its steps,
    ends the episodes without closing steps, and raises OutOfMemory.

    At the end of a ``with`` block, open episodes end as truncated, without a closing step, and the
    logger ``gear`` says how many. Only one thread at a time may use a writer. In a forked child of
    the process that made the buffer, all but `close`, ``episodes`` and ``ended`` raise
    InvalidArgument.
    """

    _instead = "make a writer in the thread that appends, with buffer.writer()"

    def __init__(
        self,
        shard: _core.Shard,
        schema: Schema,
        envs: Any,
        *,
        autoreset: Any = None,
        final: str | Sequence[str] | None = DEFAULT_FINAL,
        episodes: Sequence[int | None] | None = None,
        ended: Sequence[str | None] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        check_names(schema)
        count = num_environments(envs)
        mode = mode_of(envs, autoreset)
        wait_s = check_timeout("[writer]", timeout_s)
        uids = checked_episodes(episodes, count)
        super().__init__(
            shard,
            count,
            mode == "next_step",
            closing_columns(final, schema, mode),
            uids,
            checked_ends(ended, uids, mode),
            wait_s,
            stream_of,
        )

    def end_episode(
        self,
        *,
        terminated: bool = False,
        mask: Any = None,
        final: Mapping[str, Any] | None = None,
    ) -> None:
        """Ends the open episodes of all environments, or of those that ``mask`` (bool ``[N]``)
        names; those that have none are passed over.

        Args:
            terminated: True: the environments ended them; False: they were cut off (truncated). An
                episode of mode ``"next_step"`` that has ended, and waits for the row behind its
                end, ends as it did.
            mask: which environments.
            final: columns of the closing steps, as in ``append``.
        """
        ended = check_flag("[writer] terminated", terminated)
        self._end_episodes(ended, mask=mask, final=final)

    def close(self) -> None:
        """Ends open episodes as truncated, with a warning. The writer takes no more steps.

        In a forked child nothing ends: the episodes are the parent's.
        """
        self._cut(None)

    def __enter__(self) -> VectorWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._cut(kind)

    def _cut(self, kind: type[BaseException] | None) -> None:
        """Closes, and warns where episodes were open; kind: the exception that is under way."""
        log = logging.getLogger("gear")
        try:
            self._flush_last()
        except Exception as error:
            if kind is None:
                raise
            log.warning("[writer] a writer's last call is not stored: %s", error)
        finally:
            self._warn_of_cut(self._close(), kind)

    @staticmethod
    def _warn_of_cut(cut: int, kind: type[BaseException] | None) -> None:
        if cut == 0:
            return
        logging.getLogger("gear").warning(
            "[writer] %d environment(s) had an episode open when %s: the writer ended them as "
            "truncated, without a closing step, so that what follows their last steps is zero in a "
            "batch, and masked; call writer.end_episode(final={...}) at the end",
            cut,
            "their writer was closed" if kind is None else f"{kind.__name__} left their writer",
        )


def num_environments(envs: Any) -> int:
    given = getattr(envs, "num_envs", envs)
    if not isinstance(given, bool) and isinstance(given, Integral) and (count := int(given)) >= 1:
        return count
    raise InvalidArgument(
        f"[writer] envs {envs!r}: a number of environments, 1 or more, or a vector environment "
        "with num_envs is allowed; a saved episode to go on with is named by episode="
    )


def mode_of(envs: Any, autoreset: Any) -> Autoreset:
    """The mode that is asked for, or that the environment names."""
    named = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
    if autoreset is None and named is None:
        raise InvalidArgument(
            f"[writer] autoreset is not given for {num_environments(envs)} environments: say how "
            f"they reset, by one of {MODES}; gymnasium's are 'next_step' unless told otherwise "
            "(an episode to go on with is given by name: episode=)"
        )
    modes = {checked_mode(mode) for mode in (autoreset, named) if mode is not None}
    if len(modes) > 1:
        raise InvalidArgument(
            f"[writer] autoreset {autoreset!r}: these environments say themselves {named}: leave "
            "it out"
        )
    return modes.pop()


def checked_mode(mode: Any) -> Autoreset:
    text = getattr(mode, "name", mode)  # of gymnasium.vector.AutoresetMode
    text = check_text("[writer] autoreset", text).lower()
    if text not in MODES:
        raise InvalidArgument(f"[writer] autoreset {mode!r}: one of {MODES} is allowed")
    return text


def check_names(schema: Schema) -> None:
    """A column may have a flag's name, and is stored from it."""
    for column in schema.columns:
        flag = column.name in ("terminated", "truncated")
        if column.name in ("mask", "final") or (
            flag and (column.shape, column.dtype) != ((), "bool")
        ):
            raise InvalidArgument(
                f"[writer] column {column.name!r} has the name of an argument of append"
                + (" and is no bool of shape ()" if flag else "")
                + ": a writer of several environments wants another name for it"
            )


def closing_columns(final: Any, schema: Schema, mode: Autoreset) -> list[str]:
    """The columns of which the row behind an end makes the closing step: of "next_step" alone."""
    columns = [column.name for column in schema.columns]
    if final is not None and not isinstance(final, (str, Sequence)):
        raise InvalidArgument(
            f"[writer] final {final!r}: the name of a column, several, or None, of {columns}, is "
            "allowed"
        )
    names = [final] if isinstance(final, str) else list(final or [])
    if mode != "next_step":
        if names not in ([], [DEFAULT_FINAL]):
            raise InvalidArgument(
                f"[writer] final {final!r} is for autoreset 'next_step', whose row behind an "
                f"episode's end it names; of {mode!r} give append(final={{...}}) with the flag"
            )
        return []
    for name in names:
        if name not in columns:
            raise InvalidArgument(
                f"[writer] final {name!r} is no column, of which the row behind an episode's end "
                f"would make its closing step: name what an environment shows, of {columns}, "
                "or None for no closing step"
            )
    return names


def checked_episodes(episodes: Any, count: int) -> list[int | None]:
    if episodes is None:
        return []
    if isinstance(episodes, str) or not isinstance(episodes, Sequence) or len(episodes) != count:
        raise InvalidArgument(
            f"[writer] episode {episodes!r}: a list of {count}, an episode or None for each "
            "environment, is allowed"
        )
    return [None if e is None else check_count("[writer] episode", e) for e in episodes]


def checked_ends(ended: Any, uids: Sequence[int | None], mode: Autoreset) -> list[str | None]:
    """How the episodes to go on with have ended: only the writer knows that had them."""
    if mode != "next_step" or not any(uid is not None for uid in uids):
        if ended is None:
            return []
        raise InvalidArgument(
            f"[writer] ended {ended!r}: for autoreset 'next_step' alone, with the episodes to go "
            "on with: episode="
        )
    if ended is None:
        raise InvalidArgument(
            f"[writer] episode {list(uids)}: with autoreset 'next_step' an episode may have ended "
            "and wait for the row that closes it, which a checkpoint does not say: give ended=, "
            "what writer.ended was when the buffer was saved, or end these episodes by "
            "buffer.writer(episode=...).end_episode(), and reset the environments"
        )
    if isinstance(ended, str) or not isinstance(ended, Sequence) or len(ended) != len(uids):
        raise InvalidArgument(
            f"[writer] ended {ended!r}: a list of {len(uids)}, as writer.ended gives it, is allowed"
        )
    for end, uid in zip(ended, uids, strict=True):
        if end not in (None, "terminated", "truncated") or (end is not None and uid is None):
            raise InvalidArgument(
                f"[writer] ended {end!r} of episode {uid}: 'terminated' and 'truncated' of an open "
                "episode are allowed, and None where it has not ended"
            )
    return list(ended)
