"""The line that says how far the start of a job has come, and the deadline of the start.

Used by `supervision`. Pure but for the stream it writes to: the caller gives the time and which ranks are up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Optional

_QUIET_S: Final = 2.0
_QUIET_TTY_S: Final = 0.5


class StartProgress:
    """Follows the ranks of a job until all have called hvd.init(), or the program turns out not to call it.

    Args:
        size: ranks of the job.
        timeout_s: time that the others have once a first rank is up; None: they are waited for elsewhere.
        on_tty: the line is renewed in place; otherwise it is written once.
        started_s: when the ranks were started.
        caller: what the lines begin with.
    """

    def __init__(
        self, size: int, timeout_s: Optional[float], on_tty: bool, started_s: float, caller: str = "horovodrun"
    ) -> None:
        self._size = size
        self._timeout_s = timeout_s
        self._on_tty = on_tty
        self._started_s = started_s
        self._caller = caller
        self._first_up_s: Optional[float] = None
        self._up: frozenset[int] = frozenset()
        self._over = False
        self._shown = ""
        self._said_end = False

    @property
    def done(self) -> bool:
        """All ranks are up, or the start is over in another way."""
        return self._over or len(self._up) == self._size

    @property
    def partly(self) -> bool:
        """Some ranks are up, but not all."""
        return bool(self._up) and not self.done

    def see(self, up: Iterable[int], over: bool, now_s: float) -> str:
        """Takes which ranks are up, and whether the ranks have parted again; returns what to write, mostly nothing."""
        self._over = self._over or over
        self._up = self._up | frozenset(up)
        if self._up and self._first_up_s is None:
            self._first_up_s = now_s
        if self.done:
            if self._shown and not self._on_tty and not self._said_end and len(self._up) == self._size:
                self._said_end = True
                return f"{self._caller}: all {self._size} ranks are up, after {now_s - self._started_s:.1f} s\n"
            return self.clear()
        # The program may be one that never calls hvd.init(), so nothing is said before a first rank is up.
        quiet_s = _QUIET_TTY_S if self._on_tty else _QUIET_S
        if not self._up or now_s - self._started_s < quiet_s or (self._shown and not self._on_tty):
            return ""
        line = f"{self._caller}: {len(self._up)}/{self._size} ranks up; waiting for {_names(self.missing())}"
        if line == self._shown:
            return ""
        self._shown = line
        return f"\r\x1b[K{line}" if self._on_tty else line + "\n"

    def clear(self) -> str:
        """What wipes the line off a terminal, before other output comes."""
        wipe = "\r\x1b[K" if self._shown and self._on_tty else ""
        if self._on_tty:
            self._shown = ""
        return wipe

    def missing(self) -> list[int]:
        """Ranks that are not up."""
        return sorted(set(range(self._size)) - self._up)

    def overdue(self, now_s: float) -> bool:
        """The start has taken too long."""
        if self.done or self._first_up_s is None or self._timeout_s is None:
            return False
        return now_s - self._first_up_s > self._timeout_s

    def complaint(self) -> str:
        """The error of an overdue start."""
        return (
            f"{len(self._up)} of {self._size} ranks called hvd.init(), but {_names(self.missing())} did not "
            f"within {self._timeout_s:g} s. See what they do, or allow more time with --start-timeout."
        )


def _names(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8]) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
