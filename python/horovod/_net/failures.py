"""What can go wrong while ranks find one another, as exceptions of this package.

Raised by every module of `horovod._net`; `horovod._core` and the launcher translate them into the public error tree,
which this package must not import. It holds no logic.
"""

from __future__ import annotations

from collections.abc import Sequence


class NetError(RuntimeError):
    """The ranks of a job could not be connected."""


class PlacementError(NetError, ValueError):
    """The environment does not say, or contradicts itself about, which rank this process is."""


class ProtocolError(NetError):
    """Bytes that are not a well-formed frame of this protocol version."""


class AuthenticationError(NetError):
    """The other side does not hold the job's secret, or belongs to another job, epoch, role or rank."""


class MeetingError(NetError):
    """The meeting directory cannot be used: wrong owner or mode, no secret, or a rank that is claimed twice."""


class ResourceError(NetError):
    """This process or machine lacks what connecting needs: descriptors, memory, space. No other rank is to blame, and
    trying again does not help; the message names the limit."""


class ConnectError(NetError):
    """A rank failed, died or never came while the job was connecting.

    Attributes:
        ranks: the ranks that are to blame, ascending; empty when none can be named.
    """

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks: tuple[int, ...] = tuple(sorted(ranks))


class StartTimeoutError(ConnectError):
    """The start timeout passed; `ranks` are those that never connected."""
