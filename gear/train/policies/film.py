"""Pictures of an episode (its frames, a film, its numbers over time), and of grids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SIDE = 8  # frames of a picture
MOST = 400  # frames of a film: a longer episode is shown every so many steps
WIDEST = 400  # pixels
NO_COLOUR = "#ffffff"
# ARC's, 0 to 9
COLOURS = (
    *("#000000", "#0074d9", "#ff4136", "#2ecc40", "#ffdc00"),
    *("#aaaaaa", "#f012be", "#ff851b", "#7fdbff", "#870c25"),
)


def write_gif(path: Path, frames: Sequence[Array], *, fps: int) -> Path:
    """Frames uint8 [height, width, 3] as a film that starts again at its end."""
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames[:: -(-len(frames) // MOST)]]
    for image in images:
        image.thumbnail((WIDEST, WIDEST))
    images[0].save(
        path, "GIF", save_all=True, append_images=images[1:], duration=1000 // fps, loop=0
    )
    return path


def side_by_side(path: Path, frames: Sequence[Array], title: str) -> Path:
    """Up to SIDE frames from the first to the last, each with the number of its step."""
    from matplotlib.figure import Figure

    chosen = np.unique(np.linspace(0, len(frames) - 1, SIDE).astype(int))
    figure = Figure(figsize=(2 * len(chosen), 2.6), layout="constrained")
    for axes, step in zip(
        figure.subplots(1, len(chosen), squeeze=False)[0], chosen.tolist(), strict=True
    ):
        axes.imshow(frames[step])
        axes.set(title=f"step {step}", xticks=[], yticks=[])
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    return path


def over_time(path: Path, obs: Array, actions: Array, rewards: Array, title: str) -> Path:
    """Observations [T, ...], actions [T, ...] and rewards [T] of an episode, one above the other.

    Of observations with many entries the first eight are shown.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained")
    rows = figure.subplots(3, 1, sharex=True)
    shown = {"observation": obs, "action": actions, "reward": rewards}
    for axes, (name, values) in zip(rows, shown.items(), strict=True):
        axes.plot(np.reshape(values, (len(values), -1))[:, :SIDE])
        axes.set(ylabel=name)
        axes.grid(alpha=0.3)
    rows[-1].set(xlabel="step")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    return path


def grids(path: Path, rows: Sequence[tuple[str, Sequence[tuple[str, Array]]]]) -> Path:
    """Grids of colours 0 to 9 side by side, each with its title: a row with its own title for each
    of `rows`. A cell of -1 has no colour."""
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    widest = max(len(shown) for _, shown in rows)
    figure = Figure(figsize=(1.7 * widest, 2.2 * len(rows)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for part, (title, shown) in zip(parts, rows, strict=True):
        part.suptitle(title, fontsize="medium")
        line = part.subplots(1, widest, squeeze=False)[0]
        for axes in line[len(shown) :]:
            axes.set_axis_off()
        for axes, (name, grid) in zip(line, shown, strict=False):
            axes.imshow(grid, ListedColormap([NO_COLOUR, *COLOURS]), vmin=-1, vmax=9)
            axes.set_title(name, fontsize="small")
            axes.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=120)
    return path
