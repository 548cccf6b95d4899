"""The journal of an elastic job: a line of JSON for everything that has happened and everything that was decided.

Used by `driver`. Each line has the time, the kind, its values and, of a decision, why.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Final, Optional, TextIO, Union

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic.blacklist import Entry
from horovod.runner.elastic.events import Decision, Event, as_json

_log: Final = logging.getLogger("horovod.runner")


class Journal:
    """See the head of the file.

    Args:
        path: of the file, which is overwritten; None: there is none.

    Raises:
        InvalidArgumentError: it cannot be written.
    """

    def __init__(self, path: Optional[str]) -> None:
        self._file: Optional[TextIO] = None
        if path is not None:
            try:
                self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 - until `close`
            except OSError as error:
                raise InvalidArgumentError(f"--elastic-log {path} cannot be written: {error.strerror}.") from error

    def write(self, happened: Union[Event, Decision]) -> None:
        """Writes one line."""
        self.note(as_json(happened))

    def held(self, entry: Entry, now_s: float) -> None:
        """Writes one line on a host that gets no more ranks for a time, or (null) for good."""
        left_s = None if entry.until_s is None else round(entry.until_s - now_s, 3)
        self.note({"event": "held", "host": entry.host, "for_s": left_s, "stay": not entry.drains, "why": entry.why})

    def note(self, values: dict[str, Any]) -> None:
        """Writes one line with these values."""
        if self._file is not None:
            try:
                self._file.write(json.dumps({"time": round(time.time(), 3), **values}) + "\n")
            except OSError as error:
                _log.warning("--elastic-log cannot be written any more: %s; the job goes on.", error.strerror)
                self.close()

    def close(self) -> None:
        """Ends the file. May be called twice."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                return  # it was said when it could not be written
