"""Which hosts get no new ranks for now, and why: a value that changes by failures and by time. Pure.

Used by `machine`. A host on which a rank fails is given up for good, or with a cool-down range for a while that doubles
with every failure; its other ranks leave too. A host that is silent has not failed: it is called again after 10 s, then
after pauses that double, until it is there again. The only host of a job is not given up, since the job would be: its
slot is filled again, at once the first time, then after pauses that grow. So is a slot, on any host, whose newcomers
end with code 0 before they have a place, until they have been too many.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.backoff import pause_before

_LEAST_S: Final = 1
_MOST_S: Final = 3600
_SILENT_S: Final = (10.0, 300.0)  # pauses before a host that was silent is called again
_FORGIVEN_S: Final = 600.0  # without a failure, the failures of the only host of a job are forgotten
_MOST_EARLY: Final = 6  # restarts of newcomers, one after the other


class Entry(NamedTuple):
    """What is held against a host.

    Attributes:
        host: its name.
        failures: number that counts.
        since_s: the last that counted.
        until_s: no new rank starts there before; None: never again.
        drains: its other ranks leave as well.
        why: the failure, in words.
        early: number of newcomers in a row that ended with code 0 before they had a place.
        silent: nothing was heard from it any more, and it has not been back since.
    """

    host: str
    failures: int
    since_s: float
    until_s: Optional[float]
    drains: bool
    why: str
    early: int = 0
    silent: bool = False

    def holds(self, now_s: float) -> bool:
        """It is in force."""
        return self.until_s is None or now_s < self.until_s


class Blacklist(NamedTuple):
    """See the head of the file.

    Attributes:
        entries: one per host; the one that changed last comes last.
        cooldown: least and greatest delay in seconds; None: for good.
    """

    entries: tuple[Entry, ...] = ()
    cooldown: Optional[tuple[int, int]] = None

    def of(self, host: str) -> Optional[Entry]:
        """What is held against a host, in force or not."""
        return next((entry for entry in self.entries if entry.host == host), None)

    def holds(self, host: str, now_s: float) -> bool:
        """No new rank may start there."""
        entry = self.of(host)
        return entry is not None and entry.holds(now_s)

    def drains(self, host: str, now_s: float) -> bool:
        """Nor may its ranks stay."""
        entry = self.of(host)
        return entry is not None and entry.drains and entry.holds(now_s)

    def given_up(self, host: str, now_s: float) -> bool:
        """Nothing need be kept for ranks to come there."""
        entry = self.of(host)
        return entry is not None and entry.holds(now_s) and (entry.drains or entry.until_s is None)

    def after_failure(
        self, host: str, why: str, alone: bool, now_s: float, chance: float, silent: bool = False
    ) -> Blacklist:
        """With one failure more. One during a cool-down does not lengthen it.

        Args:
            host: where a rank has failed.
            why: in words.
            alone: the job has no other host.
            now_s: the time.
            chance: from 0 to 1, by which delays of several hosts differ.
            silent: nothing was heard from the host any more. Until it is back, that it cannot be used follows from it.
        """
        before = self.of(host)
        if before is not None and before.drains and before.holds(now_s):
            return self
        failures = 1 if before is None else before.failures + 1
        if alone and before is not None and now_s - before.since_s > _FORGIVEN_S:
            failures = 1
        until_s = self._until(failures, alone, now_s, chance)
        if until_s is None and silent:
            least, most = _SILENT_S
            until_s = now_s + min(least * 2 ** min(failures - 1, 32), most)
        return self._with(Entry(host, failures, now_s, until_s, not alone, why, silent=silent))

    def after_early_end(self, host: str, why: str, now_s: float, chance: float) -> Blacklist:
        """With one newcomer more that has ended with code 0 before it had a place: nothing has failed, so the ranks
        that the host has stay, but the next one may end in the same way. One during a pause does not count. Arguments
        as of `after_failure`."""
        before = self.of(host)
        if before is not None and before.holds(now_s):
            return self
        recent = before is not None and now_s - before.since_s <= _FORGIVEN_S
        early = before.early + 1 if before is not None and recent else 1
        until_s = None if self.cooldown is None and early > _MOST_EARLY else self._until(early, True, now_s, chance)
        return self._with(Entry(host, before.failures if before else 0, now_s, until_s, False, why, early))

    def after_good_start(self, host: str) -> Blacklist:
        """A newcomer there has a place: those before it are forgiven."""
        before = self.of(host)
        if before is None or not (before.early or before.silent):
            return self
        return self._with(before._replace(early=0, silent=False))

    def _with(self, entry: Entry) -> Blacklist:
        others = [each for each in self.entries if each.host != entry.host]
        return self._replace(entries=(*others, entry))

    def next_s(self, now_s: float) -> Optional[float]:
        """When the next host may have ranks again."""
        times = [entry.until_s for entry in self.entries if entry.until_s is not None and entry.until_s > now_s]
        return min(times, default=None)

    def _until(self, failures: int, alone: bool, now_s: float, chance: float) -> Optional[float]:
        if self.cooldown is not None:
            return now_s + cooldown_s(failures, self.cooldown, chance)
        return now_s + pause_before(failures) if alone else None


def cooldown_s(failures: int, bounds: tuple[int, int], chance: float) -> float:
    """Seconds that a host is given up for: `least * (2 ** failures + chance)`, within the bounds."""
    least, most = bounds
    return float(min(max(least * (2 ** min(failures, 32) + chance), least), most))


def check_cooldown(bounds: tuple[int, int], called: str) -> None:
    """Refuses bounds that are no seconds a job would wait.

    Raises:
        InvalidArgumentError: they are not within 1 and 3600.
    """
    if bounds[0] < _LEAST_S or bounds[1] > _MOST_S:
        raise InvalidArgumentError(
            f"{called} must be two numbers of seconds from {_LEAST_S} to {_MOST_S}, the first not above the second. "
            f"Received: {bounds[0]} {bounds[1]}."
        )
