"""When the other side of a link counts as lost, judged by when it was last heard. Pure.

Used by `channel` and by those that make one. The promise: a cut that is at least half a second shorter than the time
that the user has set (--link-timeout) is survived. A host that is silent for longer is lost within that time and a
second and a half; where datagrams do not pass, within twice that time and two seconds.

Datagrams (`pulses`) show at once that a link is back: what delays them is the quarter of a second between two of them,
and up to a second in which the kernel looks for the other host's hardware address. Where there are none, the stream is
heard again when TCP repeats what was lost: at most as long after the cut as it has lasted.
"""

from __future__ import annotations

from typing import Final, Optional

LOOK_S: Final = 0.125  # between two checks
_RETURN_S: Final = (
    0.9  # for datagrams to come again: under half a second after the limit, a check, and time to report it
)
_STREAM_RETURN_S: Final = 2.0  # a beat is sent every second: one may be due before the cut, and one after it
_TOGETHER_S: Final = 2.0  # if datagrams stopped earlier than this before the stream, something blocks them alone
_STOOD_STILL_S: Final = 2.0  # between two checks
_KEEPER_S: Final = 0.6
_SURELY_S: Final = 0.5  # a silence that is so much shorter than the time is survived


def limit_s(timeout_s: float, by_datagram: bool) -> float:
    """The seconds of silence after which the other side counts as lost.

    Args:
        timeout_s: --link-timeout.
        by_datagram: datagrams came until the silence began.
    """
    return timeout_s + _RETURN_S if by_datagram else 2 * timeout_s + _STREAM_RETURN_S


class Vigil:
    """Watches over one link.

    Args:
        timeout_s: --link-timeout.
        now_s: the time.
        begun: False: the other side is expected from its first sign of life on.

    Attributes:
        timeout_s: as given.
        patient: the other side has said that it will be silent.
        begun: the other side has given its first sign of life.
    """

    def __init__(self, timeout_s: float, now_s: float, begun: bool) -> None:
        self.timeout_s = timeout_s
        self.patient = False
        self._stream_s: Optional[float] = now_s if begun else None
        self._datagram_s: Optional[float] = None
        self._looked_s = now_s

    @property
    def begun(self) -> bool:
        return self._stream_s is not None

    @property
    def keepers_s(self) -> float:
        """How long a keeper waits for an agent that stands still: longer than the launcher, which has given it up."""
        return limit_s(self.timeout_s, self._by_datagram) + _KEEPER_S

    @property
    def busy_s(self) -> float:
        """How long this side may be busy and say nothing, without being given up by the other one."""
        return self.timeout_s - _SURELY_S

    @property
    def _by_datagram(self) -> bool:
        """Datagrams came as long as the stream did."""
        stream_s, datagram_s = self._stream_s, self._datagram_s
        return stream_s is not None and datagram_s is not None and datagram_s >= stream_s - _TOGETHER_S

    def heard(self, now_s: float) -> None:
        """Something has come over the stream."""
        self._stream_s = now_s

    def begin(self, now_s: float) -> None:
        """Something has come over the stream, perhaps not from the other side; it counts once that one has begun."""
        if self._stream_s is not None:
            self._stream_s = now_s

    def heard_datagram(self, now_s: float) -> None:
        """A sign of life has come as a datagram."""
        self._datagram_s = now_s

    def believed_s(self, now_s: float) -> Optional[float]:
        """To be asked every LOOK_S: how long the other side has been silent, if that is believed. A side that has
        itself stood still (stopped, or a machine that slept) has heard nothing for that reason, and begins again."""
        stood_still = now_s - self._looked_s > _STOOD_STILL_S
        self._looked_s = now_s
        if self._stream_s is None:
            return None
        if self.patient or stood_still:
            self._stream_s = now_s
            self._datagram_s = None if self._datagram_s is None else now_s
        last_s = max(self._stream_s, self._datagram_s or self._stream_s)
        silent_s = now_s - last_s
        return silent_s if silent_s > limit_s(self.timeout_s, self._by_datagram) else None
