"""Which job a place for durable commits belongs to: one at a time, as long as it lives.

A job has a sign there: a small file with a name of its own, which names the job and is refreshed every few seconds. A
new job reads the signs of others first: it gives way to a job that is alive, and takes the place over from a dead one.
Then it puts up its own sign and reads the others once more: of two jobs that begin at the same time, at least one sees
the other. This needs no lock of the file system and no synchronized clocks. A job that finds its own sign gone was
taken for dead.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from typing import Final, Literal, Optional

from horovod._core.commits.bounded import NoAnswerError
from horovod._core.commits.places import Place
from horovod._core.commits.signs import NAME, Found, Owner, judged, read_sign
from horovod._core.errors import InvalidArgumentError

__all__ = ["BEAT_S", "SILENCE_S", "Ownership", "refuse_living"]

BEAT_S: Final = 10.0
SILENCE_S: Final = 40.0  # after which an owner on another host is taken for dead
_LOOK_S: Final = 1.0
_TRIES: Final = 20

_log: Final = logging.getLogger("horovod")
_State = Literal["living", "dead", "unknown", "gone"]


def refuse_living(where: Place) -> None:
    """Refuses a place of a job that is alive, as far as this process can see at once.

    Raises:
        InvalidArgumentError: says whose it is.
    """
    for name in where.names():
        if NAME.fullmatch(name) and (sign := read_sign(where, name).sign) and judged(sign) == "living":
            raise _taken(where, str(sign.owner))


class Ownership:
    """This job's ownership of a place.

    Args:
        where: the place.
        owner: this process.
    """

    def __init__(self, where: Place, owner: Owner) -> None:
        self._place = where
        self._name = f"owner-{owner.job}.json"
        self.owner = owner
        self._lock = threading.Lock()  # of the sign
        self._beats = 0
        self._is_up = False
        self._lost = False
        self._ended: Optional[threading.Event] = None

    @property
    def lost(self) -> bool:
        """Another job has the place."""
        return self._lost

    @property
    def held(self) -> bool:
        """This process refreshes the sign."""
        return self._ended is not None

    def take(self) -> None:
        """Makes the place this job's; waits until it is known whether the previous owner is alive.

        Raises:
            InvalidArgumentError: another job has it.
        """
        self._lost = False
        if self._name in self._names() and self.refresh():  # of the previous rank 0, which may be dead
            self._begin()
            return
        self._lost = True
        for attempt in range(_TRIES):
            dead = {name for name in self._names() - {self._name} if self._is_dead(name)}
            self._put_up()
            is_alone = False
            try:
                is_alone = not self._names() - dead - {self._name}
            finally:
                if not is_alone:  # a job that came meanwhile may not have seen this sign: at least one withdraws
                    self._place.remove(self._name)
            if is_alone:
                self._lost = False
                self._begin()
                return
            time.sleep(0.1 * (attempt + 1) * os.urandom(1)[0] / 255)
        raise _taken(self._place, "one that begins at the same time")

    def refresh(self) -> bool:
        """Refreshes the sign. False: it is gone, since another job has taken this one for dead."""
        with self._lock:
            if self._lost:
                return False
            try:
                self._place.mark(self._name, self._content(), new=not self._is_up)
                self._is_up = True
            except FileNotFoundError:
                self._lost = True
                _log.warning(
                    "another job has taken over the durable commits in %s, because this process gave no sign of life "
                    "for more than %g s. This job writes no further ones. Training goes on.",
                    self._place.where,
                    SILENCE_S,
                )
            except Exception as error:  # a place behind a URL raises what it likes
                _log.debug("%s: the sign of this job was not refreshed: %s", self._place.where, error)
            return not self._lost

    def pause(self) -> None:
        """Another process of this job refreshes the sign from here on."""
        if self._ended is not None:
            self._ended.set()
            self._ended = None

    def give_up(self) -> None:
        """The place is free, unless another process of this job has it."""
        if self._ended is None:
            return
        self.pause()
        with self._lock, contextlib.suppress(Exception):
            sign = read_sign(self._place, self._name).sign
            if sign is not None and sign.owner == self.owner:
                self._place.remove(self._name)

    def _put_up(self) -> None:
        try:
            self._place.mark(self._name, self._content(), new=True)
            self._is_up = True
        except NoAnswerError:
            raise
        except OSError as error:  # a disk may be full for a while
            text = "%s cannot be marked as in use by this job: %s. Until then, other jobs are not kept out of it."
            _log.warning(text, self._place.where, error)

    def _begin(self) -> None:
        if self._ended is None:
            self._ended = threading.Event()
            threading.Thread(target=self._beat, args=(self._ended,), name="horovod-owner", daemon=True).start()

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_S) and self.refresh():
            pass

    def _content(self) -> bytes:
        import json  # few ranks write commits

        self._beats += 1
        return json.dumps({**self.owner.values(), "beats": self._beats, "seen_s": time.time()}).encode()

    def _names(self) -> set[str]:
        return {name for name in self._place.names() if NAME.fullmatch(name)}

    def _is_dead(self, name: str) -> bool:
        """Removes the sign of a dead job. False: the sign has gone by itself.

        Raises:
            InvalidArgumentError: the job is alive, or that cannot be known.
        """
        found = read_sign(self._place, name)
        who = str(found.sign.owner) if found.sign else f"the unknown process that wrote {name}"
        state: _State = judged(found.sign) if found.sign else "unknown"
        if state == "unknown":
            text = "the durable commits in %s belong to another job: %s. Waiting up to %g s to see if it still runs."
            _log.warning(text, self._place.where, who, SILENCE_S)
            state = self._watched(name, found)
        if state == "living":
            raise _taken(self._place, who)
        if state == "dead":
            text = "the durable commits in %s belonged to a job that has ended: %s. This job takes them over."
            _log.warning(text, self._place.where, who)
            self._remove(name)
        return state == "dead"

    def _watched(self, name: str, first: Found) -> _State:
        """Watches a sign: "dead" if it is not refreshed. A job whose sign cannot be read is not taken for dead."""
        until_s = time.monotonic() + SILENCE_S
        latest = first
        while time.monotonic() < until_s:
            time.sleep(_LOOK_S)
            if name not in self._names():
                return "gone"
            latest = read_sign(self._place, name)
            if first.error and not latest.error:  # from here on it can be compared
                first, until_s = latest, time.monotonic() + SILENCE_S
            elif latest.sign is not None and latest != first:
                return "living"
        if latest.error:
            raise InvalidArgumentError(
                f"HOROVOD_ELASTIC_COMMIT_DIR: {self._place.where} has the file {name} of another job, which cannot be "
                f"read: {latest.error}. So this job cannot know whether that one still runs. If it has ended, remove "
                "the file; otherwise name another folder."
            )
        return "dead"

    def _remove(self, name: str) -> None:
        try:
            self._place.remove(name)
        except PermissionError as error:
            raise InvalidArgumentError(
                f"HOROVOD_ELASTIC_COMMIT_DIR: {self._place.where} has the file {name} of a job that has ended, which "
                f"cannot be removed: {error.strerror}. Remove it as its owner, or name another folder."
            ) from None


def _taken(where: Place, who: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"HOROVOD_ELASTIC_COMMIT_DIR: the commits in {where.where} belong to another job that is running: {who}. "
        "Two jobs in one folder would load each other's state. End that job, or name another folder."
    )
