"""When which signal goes to the ranks that are to stop. Pure: the caller gives the time.

Used by `supervision`. The others of a failed job first get time to raise the error themselves and to clean up.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final, Optional

_AFTER_FAILURE: Final = ((2.0, signal.SIGTERM), (7.0, signal.SIGKILL))
_AFTER_SILENCE: Final = ((0.35, signal.SIGTERM), (5.0, signal.SIGKILL))
_ON_INTERRUPT: Final = ((0.0, signal.SIGINT), (2.0, signal.SIGTERM), (7.0, signal.SIGKILL))
_ON_TERMINATE: Final = ((0.0, signal.SIGTERM), (5.0, signal.SIGKILL))
_AT_ONCE: Final = ((0.0, signal.SIGKILL),)


class Escalation:
    """Signals at growing distance from a beginning.

    Args:
        steps: (seconds after the beginning, signal), ascending.
        now_s: the beginning.
    """

    def __init__(self, steps: Sequence[tuple[float, int]], now_s: float) -> None:
        self._steps = [(now_s + delay_s, int(number)) for delay_s, number in steps]

    def due(self, now_s: float) -> Optional[int]:
        """The signal to send now, if any; each is returned once."""
        number = None
        while self._steps and self._steps[0][0] <= now_s:
            number = self._steps.pop(0)[1]
        return number

    def next_s(self) -> Optional[float]:
        """When the next signal is due; None when there is no further one."""
        return self._steps[0][0] if self._steps else None


def after_failure(now_s: float) -> Escalation:
    """A rank has failed: 2 s to raise and clean up, then SIGTERM, 5 s later SIGKILL."""
    return Escalation(_AFTER_FAILURE, now_s)


def after_end(patience_s: float, now_s: float) -> Escalation:
    """The job is done: dismissed ranks have `patience_s` to end by themselves, then SIGTERM, 5 s later SIGKILL."""
    return Escalation([(patience_s + delay_s, number) for delay_s, number in _ON_TERMINATE], now_s)


def after_silence(now_s: float) -> Escalation:
    """A host was silent for longer than --link-timeout. The other ranks have waited as long, so they raise the error
    now, or do not wait for that host: SIGTERM after a moment, then SIGKILL."""
    return Escalation(_AFTER_SILENCE, now_s)


def at_once(now_s: float) -> Escalation:
    """There is nothing to wait for."""
    return Escalation(_AT_ONCE, now_s)


def on_signal(number: int, times: int, now_s: float) -> Escalation:
    """The launcher got SIGINT, SIGTERM or SIGHUP; the second time it kills at once."""
    if times > 1:
        return at_once(now_s)
    return Escalation(_ON_INTERRUPT if number == signal.SIGINT else _ON_TERMINATE, now_s)
