"""What Python's side of a rank logs, shown as the core's lines are: by HOROVOD_LOG_LEVEL and HOROVOD_LOG_HIDE_TIME.

The logger is `horovod`. A level that the program has set for it stays, and what the program's own handlers show is not
shown twice. Used by `engine_start`.
"""

from __future__ import annotations

import logging
import sys
from typing import Final, Optional

from horovod._core.settings import PYTHON_LEVELS, Settings

_logger: Final = logging.getLogger("horovod")


class _LikeTheCore(logging.Handler):
    """Writes `2026-11-24 03:18:09,123 [rank 3] text` to stderr, wherever that leads then."""

    rank = 0
    hides_time = False

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        time = "" if self.hides_time else f"{logging.Formatter().formatTime(record)} "
        return f"{time}[rank {self.rank}] {super().format(record)}"

    def emit(self, record: logging.LogRecord) -> None:
        """Writes it, unless another handler does."""
        if _shown_by_others(record.name, self):
            return
        try:
            sys.stderr.write(self.format(record) + "\n")  # in one piece: ranks share it
            sys.stderr.flush()
        except Exception:  # nobody is left to read it, or the program's mistake: as handlers of Python do
            self.handleError(record)


_handler: Final = _LikeTheCore()
_set_level = logging.NOTSET  # by us; a program's own is another one


def follow(settings: Settings, rank: int) -> None:
    """From here on as these settings say.

    Args:
        settings: of this process. A level that nobody has given leaves the logger to the program.
        rank: of this process.
    """
    global _set_level
    given = settings.source("log_level") != "default"
    wanted = PYTHON_LEVELS[settings.log_level] if given else logging.NOTSET
    if _logger.level in (logging.NOTSET, _set_level):
        _logger.setLevel(wanted)
        _set_level = wanted
    _handler.rank, _handler.hides_time = rank, bool(settings.log_hide_time)
    if _handler not in _logger.handlers:
        _logger.addHandler(_handler)


def _shown_by_others(name: str, own: logging.Handler) -> bool:
    logger: Optional[logging.Logger] = logging.getLogger(name)
    while logger is not None:
        if any(handler is not own for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
