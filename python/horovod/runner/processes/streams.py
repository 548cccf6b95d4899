"""What the bytes of a rank's pipes are fed to, and where they come from.

Used by `supervision`, which reads them, and by what starts ranks.
"""

from __future__ import annotations

from typing import Protocol, Union

# The read end of a pipe, or the rank and the name that the crew's events give.
Source = Union[int, tuple[int, str]]


class Stream(Protocol):
    """What the bytes of one pipe are fed to: `RankStream`, or the result of a function."""

    @property
    def rank(self) -> int: ...

    @property
    def name(self) -> str:
        """Of the outlet that its text goes to."""

    @property
    def problem(self) -> str: ...

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...
