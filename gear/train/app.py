"""`gear train`: the Hydra application around `run.train`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

import gear
from gear.train.interrupt import GOES_ON, Taken, taken_outside_of_runs
from gear.train.ranks.meeting import decline_for
from gear.train.run import Interrupted, train

CONF = Path(__file__).parent / "conf"
EXPECTED = (gear.GearError, OSError)


def main(overrides: list[str]) -> int:
    """Run Hydra with these command-line words: `env=cartpole seed=1`, `--multirun`, `--cfg job` ...

    Returns the exit code: 0, 130 after Ctrl-C, 2 for flags that Hydra refuses, and 75 after SIGTERM
    or SIGUSR1: all is saved, and the same command with checkpoint=auto goes on. So it does after
    one that came before the run began: a sentence says so.
    Raises gear.GearError or OSError (a full disk ...) with one line for what the user can mend.
    """
    argv, sys.argv = sys.argv, ["gear train", *overrides]
    # Hydra would print a shortened traceback and exit; the caller decides how errors look.
    full_error = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with taken_outside_of_runs():
            _application()
    except SystemExit as stop:
        if isinstance(stop.__cause__, EXPECTED):
            raise stop.__cause__ from None
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt as stop:
        decline_for(_typed(overrides), stop)
        if not isinstance(stop, Taken):
            raise
        print(f"gear: {stop}", file=sys.stderr)
        return GOES_ON
    except (HydraException, OmegaConfBaseException) as error:  # some of Hydra's are OSErrors
        refused = gear.InvalidArgument(f"[train] {_one_line(error)}")
        decline_for(_typed(overrides), refused)
        raise refused from error
    except BrokenPipeError:  # the reader of --help has gone
        raise
    except OSError as error:  # before the run: Hydra makes its folder
        raise gear.IoError(
            f"[train] the folder for results cannot be made: {error.filename} in {os.getcwd()}: "
            f"{error.strerror}; start where you may write, or name a folder: hydra.run.dir=DIR"
        ) from error
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
    return 0


def _typed(overrides: list[str]) -> dict[str, object]:
    """The values that the words of the command line give to keys."""
    pairs = (word.lstrip("+").partition("=") for word in overrides)
    return {key: value for key, _, value in pairs if value}


def _one_line(error: Exception) -> str:
    """Hydra's words without the part that lists its search path; options separated by commas."""
    text = str(error).split("Config search path")[0]
    plain = [line.strip() for line in text.splitlines() if line[:1] != "\t" and line.strip()]
    options = [line.strip() for line in text.splitlines() if line[:1] == "\t"]
    return " ".join([*plain, ", ".join(options)]).strip()


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def _application(cfg: DictConfig) -> float | None:
    """One job. Its value, the final return, is what a sweeper optimises.

    SystemExit passes through Hydra untouched, and ends a whole --multirun.
    """
    run = HydraConfig.get()
    chosen = any(word.startswith("hydra.run.dir=") for word in run.overrides.hydra)
    run_dir = Path(run.runtime.output_dir)
    try:
        summary = train(cfg, run.overrides.task, run_dir, continue_in_place=not chosen)
    except Interrupted as interrupted:
        raise SystemExit(interrupted.exit_code) from interrupted
    except EXPECTED as error:
        raise SystemExit(2) from error
    finally:
        # Hydra made it; it is empty after a refusal, or when the run went on in another.
        with contextlib.suppress(OSError):
            run_dir.rmdir()
    final_return: float | None = summary["final_return"]
    return final_return
