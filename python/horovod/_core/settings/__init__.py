"""The settings: `setting` says what one is, `table` has all of them as rows, `values` what a process runs with."""

from __future__ import annotations

from horovod._core.settings.setting import Flag, Setting
from horovod._core.settings.values import (
    BY_ENV,
    BY_NAME,
    IDENTITY_VARIABLES,
    NOTICED_VARIABLE,
    PYTHON_LEVELS,
    SETTINGS,
    Settings,
    from_environ,
    label,
    notices,
    of_this_process,
    say_notices,
    suggestion,
    unknown_variables,
)

__all__ = [
    "BY_ENV",
    "BY_NAME",
    "Flag",
    "IDENTITY_VARIABLES",
    "NOTICED_VARIABLE",
    "PYTHON_LEVELS",
    "SETTINGS",
    "Setting",
    "Settings",
    "from_environ",
    "label",
    "notices",
    "say_notices",
    "of_this_process",
    "suggestion",
    "unknown_variables",
]
