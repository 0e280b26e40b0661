"""One rank of several that train by DeepSpeed and by Horovod, one run after the other.

libraries_worker.py FOLDER [JOB, ...]       The jobs are JSON.
    ["steps", OVERRIDES, NAME=OVERRIDES...] What strategy_worker.py does with these words.
    ["gear", WORD...]                       `gear train` with these words; its metrics have a row
                                            every 10 updates.
    ["refused", WORD...]                    FOLDER/refused-RANK: why dist.config is refused.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from strategy_worker import Transformer
from strategy_worker import main as take_steps


def train(*words):
    from gear.train.app import main
    from gear.train.record import metrics

    metrics.UPDATES_A_ROW = 10
    assert main(list(words)) == 0


def refused(folder, *words):
    from train.composed import compose

    import gear
    from gear.train.config import read
    from gear.train.ranks import Ranks
    from gear.train.strategies import make_strategy

    config = read(compose(*words))
    with Ranks.single() as alone:
        strategy = make_strategy(config.dist, alone)
        try:
            strategy.prepare(Transformer(), config.optim, overlap=True).share()
        except gear.InvalidArgument as error:
            (folder / f"refused-{os.environ['OMPI_COMM_WORLD_RANK']}").write_text(str(error))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    folder = Path(sys.argv[1])
    for kind, *words in json.loads(sys.argv[2]):
        if kind == "steps":
            take_steps(folder, words[0], words[1:])
        elif kind == "gear":
            train(*words)
        else:
            refused(folder, *words)
