"""The core's messages in Python's logging, as logger ``gear``."""

from __future__ import annotations

import functools
import logging

from gear import _core

_LEVELS = {1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}


@functools.cache
def connect_core_log() -> None:
    """Passes the core's messages at the level of GEAR_LOG and above to the logger."""
    logger = logging.getLogger("gear")
    _core.send_log_to(lambda level, message: logger.log(_LEVELS[level], message))
