"""Dumps as files that only their user reads."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from horovod._dumps.paths import dump_file
from horovod._dumps.values import Dump, from_json

_DRAFT: Final = ".dump-"
_OLD_S: Final = 3600.0


def write(path: Path, text: str) -> None:
    """Writes a file that only this user reads, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    fd, draft = tempfile.mkstemp(prefix=_DRAFT, dir=path.parent)  # 0600, and never one that was there
    try:
        with open(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def remove_old_drafts(directory: Path) -> None:
    """Removes what processes have left that were killed while they wrote a file. To write one takes far less than an
    hour; that a process is gone cannot be seen from another host."""
    for draft in directory.glob(f"{_DRAFT}*"):
        with contextlib.suppress(OSError):
            if draft.stat().st_mtime < time.time() - _OLD_S:
                draft.unlink()


def read_dumps(directory: Path, ranks: Iterable[int], since_s: float = 0.0) -> tuple[dict[int, Dump], dict[int, str]]:
    """The dumps of these ranks, and why there is none of the others.

    Args:
        directory: where they lie.
        ranks: whose.
        since_s: older ones do not count; seconds since 1970.
    """
    dumps: dict[int, Dump] = {}
    absent: dict[int, str] = {}
    for rank in ranks:
        path = dump_file(directory, rank)
        try:
            if path.stat().st_mtime < since_s:
                absent[rank] = "it has written none"
            else:
                dumps[rank] = from_json(path.read_text("utf-8"))
        except FileNotFoundError:
            absent[rank] = "it has written none"
        except (OSError, ValueError) as error:
            absent[rank] = f"it cannot be read: {error}"
    return dumps, absent
