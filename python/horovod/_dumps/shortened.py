"""Dumps shortened to a limit: the least important parts are left out first. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Optional

from horovod._dumps.values import Dump, Thread, to_json

_FRAMES: Final = 20
_OPERATIONS: Final = 20


def shortened(dump: Dump, limit: int) -> Optional[bytes]:
    """The dump as JSON of at most this many bytes; None when no useful part of it is so short.

    Args:
        dump: a whole one.
        limit: in bytes.
    """
    for each in _ever_shorter(dump):
        text = to_json(each, indent=None).encode()  # ASCII, whatever is in it
        if len(text) <= limit:
            return text
    return None


def _ever_shorter(dump: Dump) -> Iterator[Dump]:
    yield dump
    main = tuple(thread for thread in dump.threads if thread.main)
    yield replace(dump, threads=main)
    inner = tuple(Thread(thread.name, True, thread.frames[-_FRAMES:]) for thread in main)
    untold = dump.untold + max(0, len(dump.pending) - _OPERATIONS)
    yield replace(dump, threads=inner, pending=dump.pending[:_OPERATIONS], untold=untold, finished=dump.finished[-1:])
    yield replace(dump, threads=inner, pending=(), untold=dump.untold + len(dump.pending), finished=())
