"""TensorBoard shows a mean of torchmetrics, and its plugin what torch's profiler saw."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import torch
from tensorboard import default, program
from torch.profiler import profile, tensorboard_trace_handler
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import MeanMetric

PLUGIN = "pytorch_profiler"
DEADLINE_S = 60
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever the site's proxy


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mean = MeanMetric()
        mean.update(torch.tensor([1.0, 2.0, 6.0]))
        with SummaryWriter(folder) as writer:
            writer.add_scalar("return", mean.compute(), global_step=1)
        with profile(on_trace_ready=tensorboard_trace_handler(folder)):
            torch.ones(64, 64) @ torch.ones(64, 64)
        board = program.TensorBoard(plugins=default.get_plugins())
        board.configure(
            [None, "--logdir", folder, "--host", "127.0.0.1", "--port", "0", "--load_fast", "false"]
        )
        shown = Shown(board.launch())
        shown.until("scalars/tags", lambda tags: "return" in tags.get(".", {}))
        [[_, step, value]] = shown.ask("scalars/scalars", tag="return", run=".")
        assert (step, value) == (1, 3.0), (step, value)
        [run] = shown.until(f"{PLUGIN}/runs", lambda found: found["runs"])["runs"]
        views = shown.ask(f"{PLUGIN}/views", run=run)
        assert "Overview" in views, views
    print(f"TensorBoard shows a mean of 3 and, of torch's profiler, {', '.join(views)}")


class Shown:
    """What TensorBoard's plugins answer."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **words: str) -> Any:
        query = f"?{urllib.parse.urlencode(words)}" if words else ""
        with DIRECT.open(f"{self._url}data/plugin/{path}{query}", timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def until(self, path: str, is_there: Callable[[Any], object]) -> Any:
        """Files are read by a thread of TensorBoard's."""
        end = time.monotonic() + DEADLINE_S
        while not is_there(found := self.ask(path)):
            assert time.monotonic() < end, f"{path}: {found} after {DEADLINE_S} s"
            time.sleep(0.2)
        return found


if __name__ == "__main__":  # the plugin reads in a process that imports this again
    main()
