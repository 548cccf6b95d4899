"""What a program asks of a job by keyword, as settings. The keywords are those of the table of settings.

Used by `function` and `launch`, and by whatever else starts jobs for a program: its own keywords are to be these.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import BY_NAME, SETTINGS, Setting, suggestion

BY_KEYWORD: Final[dict[str, Setting]] = {
    keyword: setting for setting in SETTINGS if setting.keyword for keyword in (setting.keyword, *setting.old_keywords)
}


def values_of(caller: str, given: Mapping[str, Any], stacklevel: int = 3) -> dict[str, Any]:
    """The values of settings, by their names, that a program has given by keyword.

    Args:
        caller: whose keywords they are, for messages: "horovod.run".
        given: by keyword; None counts as absent, and of two names of one setting the later counts.
        stacklevel: of the user's line, as `warnings.warn` counts here.

    Raises:
        TypeError: there is no such keyword.
        InvalidArgumentError: a value is not of its setting's kind, or outside its bounds.
    """
    values = {}
    for keyword, value in given.items():
        setting = BY_KEYWORD.get(keyword)
        if setting is None:
            raise TypeError(f"{caller}() has no argument {keyword!r}.{suggestion(keyword, BY_KEYWORD)}")
        if value is None:
            continue
        if keyword != setting.keyword:
            warnings.warn(
                f"{caller}: {keyword} is deprecated; use {setting.keyword}.", DeprecationWarning, stacklevel=stacklevel
            )
        values[setting.name] = setting.parse(value, f"{caller}: {keyword}", coarse=True)
    return values


def refuse_exclusive(given: Mapping[str, Any]) -> None:
    """Refuses settings of which a job can have one only: those whose flags are of one group.

    Args:
        given: by a program, their values by name.

    Raises:
        InvalidArgumentError: two of them.
    """
    first: dict[str, Setting] = {}
    for setting in (BY_NAME[name] for name, value in given.items() if value):
        for group in {flag.group for flag in setting.flags if flag.group}:
            other = first.setdefault(group, setting)
            if other is not setting:
                names = " and ".join(each.keyword or each.name for each in (other, setting))
                raise InvalidArgumentError(f"{names} exclude each other; give one of them.")
