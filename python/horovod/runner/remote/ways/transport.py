"""How the launcher reaches the agent of a host: one protocol.

`link` asks nothing else of the way. `by_process` has this machine and ssh, `by_tcp` agents that call the launcher.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional, Protocol

from horovod.runner.loop import Loop


class Ending(NamedTuple):
    """What is known of a connection that has ended, or on which no agent has answered.

    Attributes:
        why: no agent has answered, without the host's name and a stop.
        may_come: the host may only be starting.
        words: the last line of what was said beside the two streams; empty when nothing was.
    """

    why: str
    may_come: bool
    words: str = ""


class Connection(Protocol):
    """The way to one agent, from the moment it is called.

    Attributes:
        fds: of two streams, from the agent and to it. The one that opened the connection closes them.
        peer: the address by which the agent's host is seen here; empty where the way does not know it.
    """

    fds: tuple[int, int]
    peer: str = ""

    def ending(self, patience_s: Optional[float]) -> Ending:
        """How it has ended, or what it waits for.

        Args:
            patience_s: the streams have ended, and this may wait so long for the rest; None: the streams are open.
        """

    def ended(self) -> bool:
        """Nothing is left of it. Does not wait."""

    def close(self, patience_s: float) -> None:
        """Waits so long until nothing is left of it, and ends the rest."""


class Transport(Protocol):
    """See the head of the file.

    Attributes:
        private: nobody else can read what goes that way, so the secrets of the job may be sent. Otherwise none is sent:
            the program that starts an agent gives it the secret of the ranks.
        at_home: the ranks live as the program that started their agent does: in its folder, with its Python where the
            command names none, and with its variables. Otherwise they live as the launcher does. That program also
            knows which of its processes are one host, whatever machine they are on.
    """

    private: bool = True
    at_home: bool = False

    def why_not(self, hosts: Iterable[str]) -> str:
        """Why these hosts cannot be reached, as far as this machine can tell; empty when they can."""
        del hosts
        return ""

    def remarks(self) -> list[str]:
        """One sentence per thing that the user should know of it.

        Raises:
            InvalidArgumentError: something that was asked for cannot be done.
        """
        return []

    def described(self, host: str) -> str:
        """How the agent of this host is started, in words that follow "by"."""

    def open(self, host: str, loop: Loop) -> Connection:
        """Begins to reach the agent of this host, on this loop. Does not wait.

        Raises:
            OSError: that cannot even begin.
        """
