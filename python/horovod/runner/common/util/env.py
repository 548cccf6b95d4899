"""Kept for import paths that other people use: what the environment says about a process, and what may be passed on."""

from __future__ import annotations

import os
import re
from typing import Final

from horovod._core.absent import absent_names
from horovod._net.clusters.launchers import LAUNCHERS

# Names that a launcher does not hand to ranks: exported bash functions and what differs from shell to shell.
IGNORE_REGEXES: Final = frozenset({"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"})


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and size as the launcher has put them into the environment, without `hvd.init()`; (0, 1) without one.

    Raises:
        PlacementError: its variables contradict one another.
    """
    for launcher in LAUNCHERS:
        if launcher.present(os.environ):
            numbers = launcher.numbers(os.environ, launcher.name)
            return numbers.rank, numbers.size
    return 0, 1


def is_exportable(name: str) -> bool:
    """The variable may be handed to processes of other jobs and hosts."""
    return not any(re.fullmatch(pattern, name) for pattern in IGNORE_REGEXES)


__getattr__ = absent_names(
    __name__, {"LOG_LEVEL_STR": "the words of HOROVOD_LOG_LEVEL: trace, debug, info, warning, error, fatal"}
)
