"""`gear eval CHECKPOINT|POLICY`: plays what was trained, and writes a table and pictures."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import gear
from gear.train.config import Puzzles
from gear.train.installed import NO_PICTURE, has, need
from gear.train.policies import film, words
from gear.train.policies.play import Played, play
from gear.train.policies.score import score
from gear.train.policies.trained import Trained, load
from gear.train.record import folder
from gear.train.tasks.make import make_environment
from gear.train.tasks.seeding import evaluation_seed

KEYS = ("env", "episodes", "video", "out", "seed", "device", "trust")
FPS = 15


def run(checkpoint: str, given: Sequence[str]) -> int:
    """Prints the table, writes it and the pictures of its first episode, or of the answers to grid
    puzzles; returns 0.

    Without `seed` the episodes are those of the run's own evaluations. Raises InvalidArgument,
    before it writes anything, for what is not possible.
    """
    keys = words.parse(given, KEYS, "eval")
    episodes = words.whole(keys, "episodes", 10)
    trust = words.flag(keys, "trust")
    trained = load(Path(checkpoint), given, device=str(keys.get("device", "cpu")), trust=trust)
    config, found = trained.config, Path(os.path.abspath(trained.path))
    out = Path(str(keys["out"])) if "out" in keys else _folder(trained, found.stem, trust)
    console = Console()
    if trained.run_dir is None and "out" not in keys:
        _say(console, f"{found} does not lie in the folder of its run: results go to {out}")
    title = f"{config.algo.name.upper()} on {config.env.id}, {found.name.replace('_', ' ')}"
    if isinstance(config.data, Puzzles):
        _only_scored(keys, found)
        need("torchmetrics", "scores of puzzles are made by it")
        _say(console, title)
        return _say_written(console, score(trained, out, console))
    seed = evaluation_seed(words.whole(keys, "seed", config.seed, least=0))
    video = Path(str(keys["video"])) if "video" in keys else None
    if video and not has("PIL"):
        raise gear.InvalidArgument(
            f"[eval] video={video} cannot be made: Pillow is not installed: pip install pillow, or "
            "leave video= out"
        )
    first, obstacle = _drawn(trained, seed)
    if obstacle and video:
        raise gear.InvalidArgument(
            f"[eval] video={video} cannot be made: {obstacle}; leave video= out, and the picture "
            "shows numbers over time"
        )
    env = make_environment(config.env, seed)
    try:
        others = [play(env, number, trained.player()) for number in range(1, episodes)]
    finally:
        env.close()
    played = [first, *others]

    out.mkdir(parents=True, exist_ok=True)
    _say(console, f"{title}, greedy")
    console.print(_table(played))
    if obstacle:
        _say(console, f"no frames, {obstacle}: the picture shows numbers over time")
    written = [_write(out / "episodes.csv", played)]
    if has("matplotlib"):
        written.append(_picture(out, config.env.id, first))
    else:
        _say(console, f"picture: {NO_PICTURE}")
    if video:
        written.append(film.write_gif(video, first.frames, fps=FPS))
    return _say_written(console, written)


def _folder(trained: Trained, name: str, trust: bool) -> Path:
    """Where the results go by themselves: into the run's folder; of a copy, which lies among what
    is not the run's, below the working directory."""
    out = (trained.run_dir or Path("outputs")) / "eval" / f"{name}-{trained.config.env.name}"
    if not trust:
        folder.refuse_links([out.parent, out, *(sorted(out.iterdir()) if out.is_dir() else ())])
    return out


def _only_scored(keys: Mapping[str, object], path: Path) -> None:
    for key in ("episodes", "video", "seed"):
        if key in keys:
            raise gear.InvalidArgument(
                f"[eval] {key}={keys[key]} is not possible: {path} has learned to answer grid "
                f"puzzles, which have no episodes, and is scored on the sets of its run; leave "
                f"{key}= out"
            )


def _drawn(trained: Trained, seed: int) -> tuple[Played, str]:
    """Episode 0 with its frames, or without them and why."""
    config, player = trained.config.env, trained.player
    plain = make_environment(config, seed)
    try:
        if not plain.draws:
            return play(plain, 0, player()), f"{plain.id} does not draw"
        try:
            return _with_frames(trained, seed), ""
        # Each simulator has its own way to say that what it draws with is not here. What is wrong
        # with the episode itself fails again without frames.
        except Exception as error:  # noqa: BLE001
            reason = " ".join(str(error).split())
            return play(plain, 0, player()), f"{plain.id} cannot draw here: {reason}"
    finally:
        plain.close()


def _with_frames(trained: Trained, seed: int) -> Played:
    config = trained.config.env
    drawing = make_environment(
        replace(config, kwargs={**config.kwargs, "render_mode": "rgb_array"}), seed
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries that look for a screen
            return play(drawing, 0, trained.player(), draws=True)
    finally:
        drawing.close()


def _picture(out: Path, name: str, first: Played) -> Path:
    path, title = out / "episode.png", f"{name}, episode 0"
    if first.frames:
        return film.side_by_side(path, first.frames, title)
    return film.over_time(path, first.obs, first.actions, first.rewards, title)


def _write(path: Path, played: Sequence[Played]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["episode", "return", "length"])
        writer.writerows((n, each.total, len(each.rewards)) for n, each in enumerate(played))
    return path


def _table(played: Sequence[Played]) -> Table:
    table = Table("episode", "return", "length")
    for number, each in enumerate(played):
        table.add_row(str(number), f"{each.total:,.1f}", f"{len(each.rewards):,}")
    table.add_section()
    totals = np.array([each.total for each in played])
    lengths = np.array([len(each.rewards) for each in played])
    table.add_row("mean", f"[bold]{totals.mean():,.1f}[/]", f"{lengths.mean():,.1f}")
    table.add_row("deviation", f"{totals.std():,.1f}", f"{lengths.std():,.1f}")
    return table


def _say_written(console: Console, written: Sequence[Path]) -> int:
    for path in written:
        _say(console, f"written: {path}")
    return 0


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
