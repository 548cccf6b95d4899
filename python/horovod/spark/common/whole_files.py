"""Files of a store that are written as a whole: nobody reads half of one, and a killed writer leaves the one before.

The new file is written beside the old one and takes its place. On some file systems a file cannot be moved onto
another: there the old one steps aside meanwhile, and `settle` puts it back if its writer was killed at that moment.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from typing import Any, Final

# Files of the others, objects, appear when they are complete.
_MOVES_ONTO: Final = frozenset({"file", "local", "sftp", "memory"})
_MOVES: Final = _MOVES_ONTO | {"hdfs", "webhdfs", "smb"}
_BESIDE: Final = re.compile(r"\.[0-9a-f]{12}\.(part|old)")
_STALE_S: Final = 3600.0  # no file is under way for so long


def protocols(fs: Any) -> tuple[str, ...]:
    """The names of a file system of fsspec."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def write(fs: Any, target: str, data: bytes) -> None:
    """Writes a file, in the place of one that may be there.

    Args:
        fs: of fsspec.
        target: path of the file, in a folder that is there.
        data: its bytes.
    """
    if _MOVES.isdisjoint(protocols(fs)):
        fs.pipe_file(target, data)
        return
    part = f"{target}.{secrets.token_hex(6)}.part"
    try:
        with fs.open(part, "wb") as file:
            file.write(data)
        _move_onto(fs, part, target)
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is what counts
            fs.rm_file(part)
        raise


def _move_onto(fs: Any, part: str, target: str) -> None:
    if not _MOVES_ONTO.isdisjoint(protocols(fs)) or not fs.exists(target):
        fs.mv(part, target)
        return
    old = f"{part.removesuffix('part')}old"
    fs.mv(target, old)
    try:
        fs.mv(part, target)
        if not fs.exists(target):
            raise OSError(f"{target} is not there after {part} was moved to it")  # WebHDFS refuses without an error
    except BaseException:
        fs.mv(old, target)
        raise
    with contextlib.suppress(FileNotFoundError):  # `settle` of another process
        fs.rm_file(old)


def settle(fs: Any, target: str) -> None:
    """Undoes what killed writers of a file have left. For the one process that writes the file from now on.

    Args:
        fs, target: as for `write`; nothing needs to be there.
    """
    if _MOVES.isdisjoint(protocols(fs)):
        return
    fs.invalidate_cache()
    folder, _, name = target.rpartition("/")
    try:
        there = [each.rpartition("/")[2] for each in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return
    beside = [f"{folder}/{each}" for each in there if each.startswith(name) and _BESIDE.fullmatch(each[len(name) :])]
    aside = sorted((each for each in beside if each.endswith(".old")), key=lambda each: _age_s(fs, each), reverse=True)
    # In this order: where there is a file, those that were seen aside before are older.
    if aside and not fs.exists(target):
        fs.mv(aside.pop(), target)
    stale = [each for each in beside if each.endswith(".part") and _age_s(fs, each) > _STALE_S]
    for each in (*aside, *stale):
        with contextlib.suppress(Exception):  # another process was faster, or the file is another user's
            fs.rm_file(each)


def _age_s(fs: Any, path: str) -> float:
    """Seconds since it was written; 0 if it is not there any more, or the file system does not say."""
    try:
        return time.time() - float(fs.modified(path).timestamp())
    except (FileNotFoundError, NotImplementedError, AttributeError):  # the last: HDFS has no time for it
        return 0.0
