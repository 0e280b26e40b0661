#!/usr/bin/env python3
"""One process of a group that plays programs and writes down what it got, for the tests to look at.

    worker.py JOB.json        {"implementation": ..., "size": ..., "folder": ..., "programs": [...]}

A rank writes `FOLDER/rank-R/PROGRAM.npz`, or `PROGRAM.error` when it fails, which ends the process:
the ranks are out of step then.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import gear
from distributed.participant import Participant, make_groups
from distributed.programs import PROGRAMS


def play(job: dict[str, object], groups: dict[bool, gear.Group], ended: list[int]) -> None:
    """All programs, as one rank; adds it to `ended`."""
    me = Participant(job, groups)
    folder = me.folder / f"rank-{me.rank}"
    folder.mkdir(exist_ok=True)
    for name in job["programs"]:
        me.begin(name)
        try:
            PROGRAMS[name](me)
        except BaseException:
            (folder / f"{name}.error").write_text(traceback.format_exc())
            raise
        me.write(folder / f"{name}.npz")
    me.close()
    ended.append(me.rank)


def main() -> bool:
    """Whether all ranks of this process played all programs to the end."""
    job = json.loads(Path(sys.argv[1]).read_text())
    faulthandler.dump_traceback_later(job["timeout_s"], exit=True)
    groups = make_groups(job)
    ended: list[int] = []
    threads = [threading.Thread(target=play, args=(job, both, ended)) for both in groups]
    for thread in threads:
        thread.start()
    while sum(not thread.is_alive() for thread in threads) == len(ended) < len(threads):
        time.sleep(0.01)
    if len(ended) < len(threads):
        time.sleep(1)  # in which other ranks of this process may say the same
    return len(ended) == len(threads)


if __name__ == "__main__":
    well = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if not well:
        os._exit(1)  # threads that wait for a rank that failed must not be waited for in turn
    faulthandler.cancel_dump_traceback_later()
