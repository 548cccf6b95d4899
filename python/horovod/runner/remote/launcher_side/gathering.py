"""The time before the ranks start: until every host has answered, or has said why not, or has not for too long.

Used by `launchers.agents`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Final, Optional

from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.remote.launcher_side.fleet import Fleet
from horovod.runner.remote.launcher_side.link import State
from horovod.runner.remote.ways.diagnosis import table

_MORE_FAILURES_S: Final = 3.0  # when one host has failed, others have this long to fail too
_QUIET_S: Final = 2.0
_TICK_S: Final = 0.5


class Gathering:
    """See the head of the file.

    Args:
        fleet: whose agents have been called.
        patience_s: how long a host may take for each step.
        surroundings: where signals come from and words go to.
    """

    def __init__(self, fleet: Fleet, patience_s: float, surroundings: Surroundings) -> None:
        self._fleet = fleet
        self._patience_s = patience_s
        self._surroundings = surroundings
        self._signals: list[int] = []
        self._called_s = time.monotonic()
        self._warned = False

    def until(self, state: State) -> Optional[Outcome]:
        """Waits until all agents are as far as this; None, or how the job has ended instead."""
        deadline_s = time.monotonic() + self._patience_s
        failed_s: Optional[float] = None
        while not self._signals:
            now_s = time.monotonic()
            waiting = self._waiting(state)
            if any(link.failed for link in self._fleet.links):
                failed_s = failed_s or now_s
                deadline_s = min(deadline_s, failed_s + _MORE_FAILURES_S)
            elif any(link.waiting for link in self._fleet.links):
                deadline_s = max(deadline_s, now_s + self._patience_s) if state is State.READY else deadline_s
            if not waiting or now_s >= deadline_s:
                break
            deadline_s += self._turn(min(_TICK_S, deadline_s - now_s))
            self._say(self._waiting(state))
        if self._signals:
            return Outcome((), self._signals[0])
        if failed_s is None:
            for link in self._fleet.links:
                if link.state is not state:
                    link.give_up()
        failures = {link.way.host: link.why for link in self._fleet.links if link.failed}
        return Outcome((), 0, table(failures, len(self._fleet.links))) if failures else None

    def _waiting(self, state: State) -> list[str]:
        return [link.way.host for link in self._fleet.links if link.state is not state and not link.failed]

    def _turn(self, timeout_s: float) -> float:
        """Hears what comes meanwhile; gives the seconds that this process was stopped by Ctrl-Z, which do not count."""
        stopped_s = 0.0
        poller = select.poll()
        poller.register(self._fleet.fileno(), select.POLLIN)
        if self._surroundings.signal_fd >= 0:
            poller.register(self._surroundings.signal_fd, select.POLLIN)
        for fd, _ in poller.poll(int(timeout_s * 1000) + 1):
            if fd == self._fleet.fileno():
                self._fleet.turn()
            else:
                numbers = self._surroundings.take_signals()
                if signal.SIGTSTP in numbers:
                    stopped_s = self._stand_still()
                # Nothing runs yet whose dumps could be wanted.
                passed_over = (signal.SIGTSTP, self._surroundings.dump_signal)
                self._signals += [number for number in numbers if number not in passed_over]
        return stopped_s

    def _stand_still(self) -> float:
        began_s = time.monotonic()
        self._fleet.pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._fleet.resume()
        return time.monotonic() - began_s

    def _say(self, waiting: list[str]) -> None:
        """One line, once, when it takes long."""
        if self._warned or not waiting or time.monotonic() - self._called_s < _QUIET_S:
            return
        self._warned = True
        names = ", ".join(waiting[:8]) + (", ..." if len(waiting) > 8 else "")
        count = len(self._fleet.links)
        with contextlib.suppress(OSError):
            self._surroundings.stderr.write(
                f"{self._surroundings.caller}: {count - len(waiting)}/{count} hosts answer; waiting for {names}\n"
            )
            self._surroundings.stderr.flush()
