"""Kept for import paths that other people use: a pipe for text between threads."""

from __future__ import annotations

import threading
from typing import Optional


class Pipe:
    """What one thread writes another one reads. A writer waits until its text has been read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text = ""
        self._closed = False

    def write(self, buf: str) -> None:
        """Waits until what was written before is read, then leaves `buf`. RuntimeError when the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._text)
            if self._closed:
                raise RuntimeError("The pipe is closed.")
            self._text = buf
            self._changed.notify_all()

    def read(self, length: int = -1, timeout: Optional[float] = None) -> Optional[str]:
        """Waits for text; at most `length` characters of it, or all. None at the end, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._text), timeout)
            if not self._text:
                return None
            cut = len(self._text) if length < 0 else length
            found, self._text = self._text[:cut], self._text[cut:]
            self._changed.notify_all()
            return found

    def flush(self) -> None:
        """There is nothing to flush; files have it."""

    def close(self) -> None:
        """Ends the pipe; what was written can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
