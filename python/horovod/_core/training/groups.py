"""Which gradients travel together: what users say with `groups`, and the groups that come of it."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, Union

from horovod._core.callers import users_level
from horovod._core.errors import InvalidArgumentError
from horovod._core.integers import as_integer

__all__ = ["assign_groups", "chosen_groups"]

# Not any iterable: a variable is one too, of its rows.
_LISTINGS: Final = (list, tuple, set, frozenset)


def chosen_groups(groups: Any, num_groups: int = 0) -> Union[None, int, list[list[Any]]]:
    """What a user asks for with `groups` and the deprecated `num_groups`, which gives a warning.

    Args:
        groups: None; an integer >= 0: the number of groups; or lists of parameters, each a group.
        num_groups: the integer, where `groups` is None.

    Raises:
        InvalidArgumentError: none of these.
    """
    if num_groups:
        warnings.warn(
            "The argument num_groups is deprecated; use groups.", DeprecationWarning, stacklevel=users_level()
        )
        groups = num_groups if groups is None else groups
    number = as_integer(groups)
    if groups is None or (number is not None and number >= 0):
        return number
    if not isinstance(groups, _LISTINGS) or not all(isinstance(group, _LISTINGS) for group in groups):
        raise InvalidArgumentError(
            f"groups must be an integer >= 0 or a list of lists of parameters. Received: {groups!r}."
        )
    for group in groups:
        for entry in group:
            if not hasattr(entry, "shape"):
                raise InvalidArgumentError(
                    f"groups must hold the parameters themselves, such as model.layers[0].kernel. Received: {entry!r}."
                )
    return [list(group) for group in groups]


def assign_groups(
    keys: Sequence[Hashable], groups: Union[None, int, Iterable[Iterable[Hashable]]]
) -> list[tuple[Hashable, ...]]:
    """The groups as tuples of keys. An integer gives the number of groups of neighbours, of nearly equal length; keys
    in no list stay alone.

    Raises:
        InvalidArgumentError: a key is in two groups, or twice in one.
    """
    if groups is None or groups == 0:
        return []
    if isinstance(groups, int):
        return [tuple(keys[start:stop]) for start, stop in _parts(len(keys), min(groups, len(keys)))] if keys else []
    known, seen, result = set(keys), set(), []
    for group in groups:
        for key in group:
            if key in seen:
                raise InvalidArgumentError("groups: a parameter is in more than one group; each may be listed once.")
            seen.add(key)
        # Parameters that need no gradient may be listed: there is nothing to reduce for them.
        members = tuple(key for key in group if key in known)
        if members:
            result.append(members)
    return result


def _parts(n: int, parts: int) -> list[tuple[int, int]]:
    base, more = divmod(n, parts)
    starts = [index * base + min(index, more) for index in range(parts + 1)]
    return list(zip(starts, starts[1:]))
