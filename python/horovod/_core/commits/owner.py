"""Which job a place for durable commits belongs to: one at a time, as long as it lives.

A job has a sign there, a small file with a name of its own, which says who it is and is refreshed all the time. Who
comes looks at the signs of others: the job of one that is living is not disturbed, that of a dead one has given the
place up. Only then it puts up its own sign, and looks once more: of two that come at once, at least one sees the other.
No lock of a file system is needed, and no clocks that agree. Whoever finds its own sign gone was taken for dead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, Final, Literal, NamedTuple, Optional

from horovod._core.commits.places import Place
from horovod._core.errors import InvalidArgumentError
from horovod._net import identity

__all__ = ["BEAT_S", "SILENCE_S", "Owner", "Ownership", "refuse_living", "this_owner", "verdict"]

BEAT_S: Final = 10.0
SILENCE_S: Final = 40.0  # of an owner on another host, until it is believed to be dead
_OLD_S: Final = 600.0  # by the clocks of two hosts, which may differ by less
_LOOK_S: Final = 1.0
_TRIES: Final = 20
_MOST_BYTES: Final = 4096
_MOST_CHARACTERS: Final = 100
_NAME: Final = re.compile(r"owner-([0-9a-f]{16})\.json")
_SCHEDULERS: Final = (
    ("SLURM_JOB_ID", "Slurm"),
    ("FLUX_JOB_ID", "Flux"),
    ("LSB_JOBID", "LSF"),
    ("PBS_JOBID", "PBS"),
)

_log: Final = logging.getLogger("horovod")
Verdict = Literal["living", "dead", "unknown"]


class Here(NamedTuple):
    """Where this process can see whether another one runs."""

    boot: str
    pids: int


@dataclasses.dataclass(frozen=True)
class Owner:
    """The process that writes the commits of a job.

    Attributes:
        job: equal in all processes of a job, and in none of another one.
        host: in words.
        boot, pids: the kernel it runs under, and the namespace of its pid; empty and 0: not known.
        pid, start: its pid, and when it was started, in the kernel's ticks.
        began: when that was, in words.
        scheduler: the job's name there, in words; may be empty.
    """

    job: str
    host: str
    boot: str
    pids: int
    pid: int
    start: int
    began: str
    scheduler: str

    def __str__(self) -> str:
        """As messages name it."""
        job = f", {self.scheduler}" if self.scheduler else ""
        return f"process {self.pid} on {self.host}, which began at {self.began}{job}"

    def values(self) -> dict[str, Any]:
        """To be given to `owner_of` again."""
        return dataclasses.asdict(self)


def owner_of(values: Any) -> Optional[Owner]:
    """What `values` made, from whoever may have written it; None: it did not."""
    if not isinstance(values, dict):
        return None
    found: dict[str, Any] = {}
    for field in dataclasses.fields(Owner):
        value = values.get(field.name)
        if not isinstance(value, int if field.type == "int" else str):
            return None
        found[field.name] = _shown(value) if isinstance(value, str) else value
    return Owner(**found)


def verdict(owner: Owner, seen_s: float, here: Here, now_s: float, runs: Callable[[int, int], bool]) -> Verdict:
    """Whether the job of this owner lives, by what one can know at once.

    Args:
        owner: of a sign.
        seen_s: the time of its clock when the sign was refreshed last.
        here: of this process.
        now_s: the time of this host's clock.
        runs: here the process of a pid that was started at a time.
    """
    if here.boot and here.pids and (owner.boot, owner.pids) == here:
        return "living" if runs(owner.pid, owner.start) else "dead"
    return "dead" if now_s - seen_s > _OLD_S else "unknown"


def this_owner(environ: Mapping[str, str], elastic: bool) -> Owner:
    """This process.

    Args:
        environ: its variables.
        elastic: its job is, so that another process may become rank 0; the launcher has given it a name.
    """
    now_s = time.time()
    place = identity.parent_and_start(os.getpid())
    names = (f"{name} job {environ[variable]}" for variable, name in _SCHEDULERS if environ.get(variable))
    here = _here()
    job = environ.get("HOROVOD_JOB_ID", "") if elastic else ""
    job = job or f"{identity.hostname()}/{here}/{os.getpid()}/{place}"
    return Owner(
        job=hashlib.blake2b(job.encode(), digest_size=8, person=b"hvd owner").hexdigest(),
        host=identity.hostname(),
        boot=here.boot,
        pids=here.pids,
        pid=os.getpid(),
        start=place[1] if place else 0,
        began=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s - _age_s(place))),
        scheduler=next(names, ""),
    )


def refuse_living(where: Place) -> None:
    """Refuses a place that belongs to a job of which this process can see at once that it lives.

    Raises:
        InvalidArgumentError: says whose it is.
    """
    for name in where.names():
        if _NAME.fullmatch(name) and (sign := _sign(where, name)) and _verdict(sign) == "living":
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
        """Makes the place this job's; waits until the owner before is known to live or to be dead.

        Raises:
            InvalidArgumentError: another job has it.
        """
        self._lost = False
        if self._name in self._names() and self.refresh():  # from the rank 0 before, which may be dead
            self._begin()
            return
        self._lost = True
        for attempt in range(_TRIES):
            dead = {name for name in self._names() - {self._name} if self._is_dead(name)}
            self._put_up()
            if not self._names() - dead - {self._name}:
                self._lost = False
                self._begin()
                return
            # A job that came meanwhile may not have seen this sign: at least one of the two withdraws.
            self._place.remove(self._name)
            time.sleep(0.1 * (attempt + 1) * os.urandom(1)[0] / 255)
        raise _taken(self._place, "others that begin at the same time")

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
                    "another job has taken over the durable commits in %s, since this process was silent for longer "
                    "than %g s. This job writes no more of them. Training goes on.",
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
            sign = _sign(self._place, self._name)
            if sign is not None and sign.owner == self.owner:
                self._place.remove(self._name)

    def _put_up(self) -> None:
        try:
            self._place.mark(self._name, self._content(), new=True)
            self._is_up = True
        except OSError as error:  # a disk may be full, or a server away, for a while
            text = "%s cannot be marked as this job's: %s. Another job there would not be refused."
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
        return {name for name in self._place.names() if _NAME.fullmatch(name)}

    def _is_dead(self, name: str) -> bool:
        """Removes the sign of a dead job. False: it has gone by itself.

        Raises:
            InvalidArgumentError: the job lives.
        """
        sign = _sign(self._place, name)
        who = str(sign.owner) if sign else f"an unknown one that has written {name}"
        found: Verdict = _verdict(sign) if sign else "unknown"
        if found == "unknown":
            text = "the durable commits in %s are those of %s. This job waits up to %g s to see whether it lives."
            _log.warning(text, self._place.where, who, SILENCE_S)
            found = self._watched(name, sign)
        if found == "living":
            raise _taken(self._place, who)
        if found == "dead":
            text = "the durable commits in %s were those of %s, which has ended. This job takes them over."
            _log.warning(text, self._place.where, who)
            self._place.remove(name)
        return found == "dead"

    def _watched(self, name: str, sign: Optional[_Sign]) -> Verdict:
        """unknown: the sign has gone."""
        deadline_s = time.monotonic() + SILENCE_S
        while time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
            if name not in self._names():
                return "unknown"
            latest = _sign(self._place, name)
            if latest is not None and latest != sign:
                return "living"
        return "dead"


class _Sign(NamedTuple):
    owner: Owner
    seen_s: float
    beats: int


def _sign(where: Place, name: str) -> Optional[_Sign]:
    """None: it is gone, or nothing that a job has written whole."""
    import json

    try:
        values = json.loads(where.peek(name, _MOST_BYTES))
        owner = owner_of(values)
        return None if owner is None else _Sign(owner, float(values["seen_s"]), int(values["beats"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _verdict(sign: _Sign) -> Verdict:
    return verdict(sign.owner, sign.seen_s, _here(), time.time(), identity.is_running)


def _taken(where: Place, who: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"HOROVOD_ELASTIC_COMMIT_DIR: the commits in {where.where} are those of another job that is running: {who}. "
        "Each of two jobs in one folder would go on from the other's state. End that job, or name another folder."
    )


def _here() -> Here:
    return Here(identity.host_identity().boot_id, identity.pid_namespace())


def _age_s(place: Optional[tuple[int, int]]) -> float:
    """How long ago the process at this place was started."""
    if place is None:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - place[1] / os.sysconf("SC_CLK_TCK"))


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_CHARACTERS])
