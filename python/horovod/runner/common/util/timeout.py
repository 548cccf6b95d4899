"""Kept for import paths that other people use: a deadline with a message."""

from __future__ import annotations

import time


class TimeoutException(Exception):
    """A deadline has passed."""


class Timeout:
    """A deadline.

    Args:
        timeout: seconds from now.
        message: of the exception; `{activity}` in it stands for what is waited for.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._deadline_s = time.monotonic() + timeout

    def timeout(self) -> float:
        """The seconds given at first."""
        return self._timeout

    def remaining(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self._deadline_s - time.monotonic())

    def timed_out(self) -> bool:
        """It has passed."""
        return time.monotonic() >= self._deadline_s

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException when it has passed.

        Args:
            activity: what is waited for, a noun.
        """
        if self.timed_out():
            raise TimeoutException(
                f"{self._message.replace('{activity}', activity)} Deadline: {self._timeout:g} s for {activity}."
            )
