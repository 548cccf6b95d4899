"""Commits that outlive all ranks: every so often rank 0 writes the newest one to a folder or URL, and a job that begins
takes the newest whole one from there. Switched on by HOROVOD_ELASTIC_COMMIT_DIR.

A thread writes, so training goes on meanwhile. Not every commit is written, but one that is due is written as soon as
it is made. What cannot be written costs a warning; what cannot be read is passed over with one.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import stat
import threading
import time
from typing import Any, Final, Optional

from horovod._core import settings
from horovod._core.errors import InvalidArgumentError
from horovod._core.training.elastic import commit_file
from horovod._core.training.elastic.commit_places import PART, Place, StrangersError, place
from horovod._core.training.elastic.snapshot import Snapshot

__all__ = ["DurableCommits", "of_next_training"]

_NAME: Final = re.compile(r"commit-(\d+)-(\d{12})\.hvd")
_KEY_BYTES: Final = 16  # fewer are guessed
_CLOSE_S: Final = 60.0

_log: Final = logging.getLogger("horovod")
_trainings: Final = itertools.count()


def of_next_training() -> Optional[DurableCommits]:
    """The durable commits of the next training of this process: a script may run several, one after the other, in the
    same order whenever it is started. None: they are not asked for.

    Raises:
        InvalidArgumentError: the folder, the URL or the file with the key cannot be used.
        UnsupportedError: a URL, and fsspec is not installed.
    """
    chosen = settings.of_this_process()
    training = next(_trainings)
    where = chosen.elastic_commit_dir
    if where is None:
        return None
    key = None if chosen.elastic_commit_key_file is None else _key_in(chosen.elastic_commit_key_file)
    if key is None and "://" in where:
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_DIR is the URL {where}, where others may be able to write, and what is read from "
            "there is unpickled. Give the name of a file with a secret as HOROVOD_ELASTIC_COMMIT_KEY_FILE."
        )
    return DurableCommits(
        place(where), key, training, chosen.elastic_commit_interval_s, chosen.elastic_commit_keep
    )  # fmt: skip


class DurableCommits:
    """The durable commits of one training.

    Args:
        where: they lie.
        key: of their MAC; None: a checksum, and only what nobody else can have written is read.
        training: its number in the script.
        interval_s: the least time between two of them.
        keep: so many stay.
    """

    def __init__(self, where: Place, key: Optional[bytes], training: int, interval_s: float, keep: int) -> None:
        self._place = where
        self._key = key
        self._training = training
        self._interval_s = interval_s
        self._keep = keep
        self._written_s = time.monotonic()
        self._writer: Optional[threading.Thread] = None

    def newest(self) -> Optional[Any]:
        """The newest commit that is whole; None if there is none.

        Raises:
            InvalidArgumentError: there is one, but others may have written it, or it was written with another key; or
                others may write here.
        """
        if self._key is None:
            try:
                self._place.require_own()
            except StrangersError as error:
                raise InvalidArgumentError(
                    f"HOROVOD_ELASTIC_COMMIT_DIR: {error}, and reading a commit unpickles it. Take that right away "
                    "from the others (chmod 700), or give the name of a file with a secret as "
                    "HOROVOD_ELASTIC_COMMIT_KEY_FILE."
                ) from None
        for name in self._parts():
            _log.warning("the durable commit %s is passed over: it was never finished.", name)
        for name in reversed(self._names()):
            try:
                content = commit_file.read(self._place.read(name, strangers=self._key is not None), self._key)
            except (commit_file.NotWholeError, OSError) as error:
                _log.warning("the durable commit %s is passed over: %s.", name, error)
            except commit_file.OtherKeyError:
                raise InvalidArgumentError(
                    f"The durable commit {name} was written with another key than that of "
                    "HOROVOD_ELASTIC_COMMIT_KEY_FILE, or one of the two has none. Give the same key, or another folder."
                ) from None
            except StrangersError as error:
                raise InvalidArgumentError(
                    f"The durable commit {name} is not read, since reading unpickles it: {error}. Take that right "
                    "away from the others, or give the name of a file with a secret as HOROVOD_ELASTIC_COMMIT_KEY_FILE."
                ) from None
            else:
                _log.info("training goes on from the durable commit %s.", name)
                return content
        return None

    def is_due(self) -> bool:
        """The commit that is being made is to be written."""
        writing = self._writer is not None and self._writer.is_alive()
        return not writing and time.monotonic() - self._written_s >= self._interval_s

    def write(self, content: dict[str, Snapshot]) -> None:
        """Begins to write a commit; whoever makes further ones leaves its memory alone meanwhile."""
        self._written_s = time.monotonic()
        for snapshot in content.values():
            snapshot.pin()
        self._writer = threading.Thread(target=self._write, args=(content,), name="horovod-durable", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Waits for what is being written, a minute at most."""
        if self._writer is not None:
            self._writer.join(_CLOSE_S)
            if self._writer.is_alive():
                _log.warning("the last durable commit is not finished after %g s, and given up.", _CLOSE_S)

    def _write(self, content: dict[str, Snapshot]) -> None:
        try:
            values = {name: snapshot.value for name, snapshot in content.items()}
            before = self._names()
            # The part files of writers that were killed: one may have the name of what comes now, by the same pid.
            # None but rank 0 writes, and one at a time.
            for name in self._parts():
                self._place.remove(name)
            self._place.write(self._name_after(before), commit_file.written(values, self._key))
            for name in before[: len(before) + 1 - self._keep]:
                self._place.remove(name)
        except Exception as error:  # a place behind a URL raises what it likes
            _log.warning("a durable commit cannot be written: %s: %s. Training goes on.", type(error).__name__, error)
        finally:
            for snapshot in content.values():
                snapshot.pin(-1)

    def _names(self) -> list[str]:
        """Of the commits of this training, the newest last."""
        found = [match for match in map(_NAME.fullmatch, self._place.names()) if match is not None]
        return sorted(match.group() for match in found if int(match.group(1)) == self._training)

    def _parts(self) -> list[str]:
        start = f".commit-{self._training}-"
        return [name for name in self._place.names() if name.startswith(start) and name.endswith(PART)]

    def _name_after(self, names: list[str]) -> str:
        number = int(names[-1].rpartition("-")[2].partition(".")[0]) + 1 if names else 1
        return f"commit-{self._training}-{number:012d}.hvd"


def _key_in(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found, text = os.fstat(fd), file.read(1 << 16).strip()
    except OSError as error:
        raise InvalidArgumentError(f"HOROVOD_ELASTIC_COMMIT_KEY_FILE: {path}: {error.strerror}.") from None
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_KEY_FILE: {path} can be read by others than its owner. Use chmod 600. "
            f"Received: {stat.filemode(found.st_mode)}."
        )
    if len(text) < _KEY_BYTES:
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_KEY_FILE: {path} must hold a secret of {_KEY_BYTES} bytes at least. "
            f"Received: {len(text)} bytes."
        )
    return hashlib.blake2b(text, digest_size=32, person=b"hvd commit key").digest()
