"""The metrics of a run, from the learner to the writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gear.train.counters import Ended
from gear.train.loop import Learner, check_finite
from gear.train.record.display import Display
from gear.train.record.loggers import MetricWriter, make_writers
from gear.train.tasks.evaluation import Evaluated

SHOWN = (
    *("episode", "return", "length", "eval_return", "eval_length"),
    *("seconds", "env_steps_per_s", "samples_per_s", "replay_fill"),
)
UPDATES_A_ROW = 100


class Metrics:
    """A row for every episode and one for every evaluation, written by rank 0; where there are no
    episodes, since the run is offline, one every UPDATES_A_ROW updates.

    What was learned with is the mean over the ranks.
    """

    def __init__(self, learner: Learner, display: Display, run_dir: Path) -> None:
        config, c = learner.config, learner.counters
        columns = [*SHOWN, *learner.algorithm.metric_names, *learner.algorithm.score_names]
        self._learner = learner
        self._display = display
        self._writers: list[MetricWriter] = []
        if learner.ranks.rank == 0:
            self._writers = make_writers(config, run_dir, columns, learner.steps)
        self._seen = (c.seconds, c.env_steps, c.updates)

    def write(self, news: Sequence[Ended]) -> None:
        """Collective if there are news, or a row is due: both are so on all ranks alike."""
        acting, steps = self._learner.acting, self._learner.steps
        if not news and (acting or steps % UPDATES_A_ROW):
            return
        learned = self._learned()
        # All ranks have the same means, and one of them says it.
        self._learner.ranks.together(lambda: check_finite(learned, self._learner.steps))
        if self._learner.ranks.rank > 0:
            return
        if learned:
            self._display.loss(next(iter(learned.values())))
        rates = self._rates()
        first = len(self._learner.counters.returns) - len(news)
        for number, ended in enumerate(news, first):
            row = {"episode": number, "return": ended.episode_return, "length": ended.length}
            self._write({**row, **rates, **learned})
        if not news:
            self._write({**rates, **learned})

    def write_evaluation(self, found: Evaluated) -> None:
        c = self._learner.counters
        c.eval_steps.append(self._learner.steps)
        c.eval_returns.append(found.value)
        played, words = {}, []
        if found.returns:
            played = {"eval_return": found.mean_return, "eval_length": found.mean_length}
            words.append(
                f"{len(found.returns)} greedy episodes: return {found.mean_return:,.1f}, from "
                f"{min(found.returns):,.1f} to {max(found.returns):,.1f}, length "
                f"{found.mean_length:,.1f}"
            )
        words += [f"{name} {value:.4g}" for name, value in found.scores.items()]
        self._write({**played, **found.scores})
        self._display.evaluation(found.value)
        what = ", ".join(words)
        self._display.note(f"step {self._learner.steps:,}: evaluation of {what}")

    def close(self) -> None:
        for writer in self._writers:
            writer.close()

    def _learned(self) -> Mapping[str, float]:
        """Means over all updates of all ranks since the previous call."""
        algorithm, ranks = self._learner.algorithm, self._learner.ranks
        if ranks.size == 1:
            return algorithm.metrics()
        from gear.train.record.means import Means  # takes half a second, and one rank needs none

        sums, count = algorithm.take_sums()
        means = Means(len(algorithm.metric_names), ranks)
        means.update(sums, count)
        values = means.compute().tolist()
        return dict(zip(algorithm.metric_names, values, strict=True)) if count else {}

    def _rates(self) -> Mapping[str, float]:
        """Since the previous rows."""
        learner, c = self._learner, self._learner.counters
        passed = max(c.seconds - self._seen[0], 1e-9)
        samples = (c.updates - self._seen[2]) * learner.config.algo.batch_size * learner.ranks.size
        rates = {
            "seconds": c.seconds,
            "env_steps_per_s": (c.env_steps - self._seen[1]) / passed,
            "samples_per_s": samples / passed,
            "replay_fill": len(learner.buffer) / learner.buffer.capacity,
        }
        self._seen = (c.seconds, c.env_steps, c.updates)
        return rates

    def _write(self, row: Mapping[str, float]) -> None:
        for writer in self._writers:
            writer.write(self._learner.steps, row)
