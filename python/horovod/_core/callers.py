"""Where in the user's program a call of this package stands, for warnings."""

from __future__ import annotations

import sys
from typing import Final

from horovod._core.frameworks import FRAMEWORKS

__all__ = ["users_level"]

# AutoGraph, torch's compiler and JAX's transformations stand between a user's line and a function of ours.
_NOT_THE_USERS: Final = frozenset({"horovod", "tf_keras", *FRAMEWORKS})


def users_level() -> int:
    """The `stacklevel` with which `warnings.warn`, called where this is, points at the user's line: the innermost that
    is neither ours nor a framework's."""
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USERS:
        frame = frame.f_back
        level += 1
    return level
