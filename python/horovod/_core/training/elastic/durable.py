"""Commits that outlive all ranks: every so often rank 0 writes the newest one to a folder or URL, and a job that begins
takes the newest whole one from there. Switched on by HOROVOD_ELASTIC_COMMIT_DIR.

A thread writes, so training goes on meanwhile. Not every commit is written, but one that is due is written as soon as
it is made. What cannot be written costs a warning; what cannot be read is passed over with one.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core import settings
from horovod._core.commits.bounded import answering, bounded
from horovod._core.commits.choice import key_of, require_usable
from horovod._core.commits.owner import Ownership
from horovod._core.commits.places import PART, Place, StrangersError
from horovod._core.commits.signs import owner_of, this_owner
from horovod._core.errors import InvalidArgumentError
from horovod._core.training.elastic import commit_file
from horovod._core.training.elastic.snapshot import Snapshot

__all__ = ["DurableCommits", "of_next_training"]

# Training, run of the job, epoch of the run, number of the writer in its life. The last three decide which is newer.
_NAME: Final = re.compile(r"commit-(\d+)-(\d{6,})-(\d{6,})-(\d{9,})\.hvd")
_NAME_OF_PART: Final = re.compile(rf"\.({_NAME.pattern})\.\d+{re.escape(PART)}")
_CLOSE_S: Final = 60.0
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

_log: Final = logging.getLogger("horovod")
_trainings: Final = itertools.count()

_Order = tuple[int, int, int]


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
    key, interval_s, keep = key_of(chosen), chosen.elastic_commit_interval_s, chosen.elastic_commit_keep
    return DurableCommits(bounded(where), key, training, interval_s, keep, bool(chosen.elastic))


class DurableCommits:
    """The durable commits of one training.

    Args:
        where: they lie.
        key: of their MAC; None: a checksum, and only what nobody else can have written is read.
        training: its number in the script.
        interval_s: the least time between two of them.
        keep: number of commits that stay.
        elastic: another process may become rank 0.

    Attributes:
        run: of the job, one more than that of everything found when it began; None: not known yet. All ranks have rank
            0's, so that every one of them that becomes rank 0 later goes on with it.
    """

    def __init__(
        self,
        where: Place,
        key: Optional[bytes],
        training: int,
        interval_s: float,
        keep: int,
        elastic: bool = False,
    ) -> None:
        self._place = where
        self._own = Ownership(where, this_owner(os.environ, elastic))
        self._key = key
        self._training = training
        self._interval_s = interval_s
        self._keep = keep
        self.run: Optional[int] = None
        self._count = 0
        self._written_s = time.monotonic()
        self._writer: Optional[threading.Thread] = None
        self._reported = ""

    def begin(self) -> Optional[Any]:
        """Makes the place this job's, as its rank 0, and returns the newest commit that is whole; None if there is
        none.

        Raises:
            InvalidArgumentError: another job has it, or it does not answer, or as `newest` says.
        """
        with answering(self._place.where):
            require_usable(self._place, self._key)
            self._own.take()
            return self.newest()

    def hold(self, writes: bool) -> None:
        """From here on this process is the one that writes, or is not."""
        if not writes:
            self._own.pause()
        elif not self._own.held:
            try:
                self._own.take()
            except Exception as error:  # a place behind a URL raises what it likes
                _log.warning("this job writes no further durable commits: %s Training goes on.", error)

    def newest(self) -> Optional[Any]:
        """The newest commit that is whole; None if there is none.

        Raises:
            InvalidArgumentError: there is one, but others may have written it, or it was written with another key; or
                others may write here, or this user cannot.
        """
        require_usable(self._place, self._key)
        names, parts = self._found()
        self.run = _next_run([*names.values(), *parts.values()])
        for name in parts:
            _log.warning("the durable commit %s is passed over: it was never finished.", name)
        unreadable: Optional[InvalidArgumentError] = None
        for name in sorted(names, key=names.__getitem__, reverse=True):
            try:
                found = commit_file.read(self._place.read(name, strangers=self._key is not None), self._key)
            except (commit_file.NotWholeError, OSError) as error:
                _log.warning("the durable commit %s is passed over: %s.", name, error)
            except commit_file.NotReadableError as error:
                _log.warning("the durable commit %s is passed over, since unpickling it fails: %s.", name, error)
                unreadable = unreadable or self._unreadable(name, error)
            except commit_file.OtherKeyError:
                raise InvalidArgumentError(
                    f"The durable commit {name} was written with another key than that of "
                    "HOROVOD_ELASTIC_COMMIT_KEY_FILE, or one of the two has none. Give the same key, or name another "
                    "folder."
                ) from None
            except StrangersError as error:
                raise InvalidArgumentError(
                    f"The durable commit {name} is not read, since reading unpickles it: {error}. Take that right "
                    "away from the others, or give the name of a file with a secret as HOROVOD_ELASTIC_COMMIT_KEY_FILE."
                ) from None
            else:
                self._tell_whose(name, found.writer)
                return found.content
        if unreadable is not None:  # a fresh start would remove it in time
            raise unreadable
        return None

    def is_due(self) -> bool:
        """The commit that is being made is to be written."""
        writing = self._writer is not None and self._writer.is_alive()
        return not writing and not self._own.lost and time.monotonic() - self._written_s >= self._interval_s

    def write(self, content: dict[str, Snapshot], epoch: int) -> None:
        """Begins to write a commit of this epoch. Its snapshots stay pinned until it is written."""
        self._written_s = time.monotonic()
        self._count += 1
        for snapshot in content.values():
            snapshot.pin()
        words = (content, epoch, self._count)
        self._writer = threading.Thread(target=self._write, args=words, name="horovod-durable", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Waits for what is being written, a minute at most, and leaves the place to other jobs."""
        try:
            if self._writer is not None:
                self._writer.join(_CLOSE_S)
                if self._writer.is_alive():
                    _log.warning("the last durable commit was not finished within %g s, and is abandoned.", _CLOSE_S)
        finally:
            self._own.give_up()

    def _write(self, content: dict[str, Snapshot], epoch: int, count: int) -> None:
        order, own = (0, epoch, count), ""
        try:
            values = {name: snapshot.value for name, snapshot in content.items()}
            if self.run is None:
                self.run = _next_run([order for found in self._found() for order in found.values()])
            order = self.run, epoch, count
            own = "commit-{}-{:06d}-{:06d}-{:09d}.hvd".format(self._training, *order)
            # Large ones of runs that ended in their first write would fill the place before one is whole.
            self._remove_parts((self.run, 0, 0))
            if self._own.held and not self._own.refresh():
                return
            try:
                self._write_file(own, values)
            finally:
                self._remove_parts((self.run, epoch + 1, 0))
        except Exception as error:  # a place behind a URL raises what it likes
            if isinstance(error, FileNotFoundError) and self._is_superseded(order):
                _log.info("the durable commit %s was abandoned, because another rank 0 wrote a newer one.", own)
            else:
                self._tell_failure(error)
        else:
            if self._reported:
                _log.warning("durable commits are written to %s again.", self._place.where)
            self._reported = ""
            self._remove_old()
        finally:
            for snapshot in content.values():
                snapshot.pin(-1)

    def _write_file(self, name: str, values: dict[str, Any]) -> None:
        """Where there is no room, older ones are removed first, except the newest."""
        while True:
            try:
                self._place.write(name, commit_file.written(values, self._own.owner.values(), self._key))
                return
            except OSError as error:
                names = self._found()[0]
                if error.errno not in _NO_ROOM or len(names) < 2:
                    raise
                self._place.remove(min(names, key=names.__getitem__))

    def _tell_failure(self, error: Exception) -> None:
        """Reports a failure that repeats only once."""
        what = f"{type(error).__name__}: {error}"
        same = f"{type(error).__name__} {error.errno}" if isinstance(error, OSError) else what
        if same != self._reported:
            _log.warning(
                "a durable commit cannot be written to %s: %s. Training goes on. Every further commit that is due is "
                "tried; the same failure is not repeated here.",
                self._place.where,
                what,
            )
        self._reported = same

    def _tell_whose(self, name: str, writer: Any) -> None:
        owner = owner_of(writer)
        if owner is not None and owner.job == self._own.owner.job:
            _log.info("training goes on from the durable commit %s.", name)
            return
        _log.warning(
            "training goes on from the durable commit %s in %s, which an earlier job wrote: %s. To start from the "
            "beginning, delete the folder or name another one.",
            name,
            self._place.where,
            owner or "an unknown process",
        )

    def _unreadable(self, name: str, error: commit_file.NotReadableError) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"The durable commit {name} in {self._place.where} is whole but cannot be unpickled, and neither can an "
            f"older one: {error}. Make importable what is missing, or use the versions that wrote it. To start from "
            "the beginning, delete the folder or name another one."
        )

    def _remove_parts(self, before: _Order) -> None:
        """The part files of writers that were killed or have failed. Of this run before an own file is whole: none, for
        a rank 0 that was dismissed may still finish what is the newest then; and of later epochs never, for a rank 0 of
        these may be writing already, while this process ends."""
        for name, order in self._found()[1].items():
            if order < before:
                self._place.remove(name)

    def _remove_old(self) -> None:
        # Looked at after the own one is there: of two writers, none takes the newest away.
        try:
            names = self._found()[0]
            for name in sorted(names, key=names.__getitem__)[: -self._keep]:
                self._place.remove(name)
        except Exception as error:  # a place behind a URL raises what it likes
            what = f"{type(error).__name__}: {error}"
            _log.warning("an older durable commit in %s cannot be removed: %s.", self._place.where, what)

    def _is_superseded(self, own: _Order) -> bool:
        with contextlib.suppress(Exception):
            return any(order > own for order in self._found()[0].values())
        return False

    def _found(self) -> tuple[dict[str, _Order], dict[str, _Order]]:
        """The commits of this training that are there, and those that are being written or were never finished."""
        names, parts = {}, {}
        for name in self._place.names():
            if (match := _NAME.fullmatch(name)) and int(match.group(1)) == self._training:
                names[name] = _order(match.group(2, 3, 4))
            elif (match := _NAME_OF_PART.fullmatch(name)) and int(match.group(2)) == self._training:
                parts[name] = _order(match.group(3, 4, 5))
        return names, parts


def _order(words: Sequence[str]) -> _Order:
    run, epoch, count = map(int, words)
    return run, epoch, count


def _next_run(orders: Sequence[_Order]) -> int:
    return max((run for run, _, _ in orders), default=0) + 1
