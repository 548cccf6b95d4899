"""Asks all probes at once, and waits for none longer than it may take. Used by `command`.

A probe that fails or does not answer is a finding like any other, so nothing that is wrong with a machine keeps the
page from being written. What could take this process down, such as a library or a framework, is asked in a child: see
`child`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Optional

from horovod.runner.doctor.findings import FAULT, Finding, Probe, Section

_NO_ANSWER: Final = "It hangs; run this again while the machine is idle, or find out what it waits for."
_OUR_DEFECT: Final = "The doctor itself failed here; please report it with this page."
_MOST_BYTES: Final = 1 << 20


class Answer(NamedTuple):
    """How a child has ended. Attributes: code (None: it was killed at its deadline), out and err, what it wrote."""

    code: Optional[int]
    out: str
    err: str

    @property
    def last_word(self) -> str:
        """The last line of what it has said to stderr; how it ended when it said nothing."""
        lines = self.err.strip().splitlines()
        if self.code is not None and self.code < 0:
            with contextlib.suppress(ValueError):
                return f"it was killed by {signal.Signals(-self.code).name}" + (f": {lines[-1]}" if lines else "")
        return lines[-1] if lines else f"it ended with code {self.code}"


def examine(probes: Sequence[Probe]) -> list[Section]:
    """The sections in the order of the probes."""
    begun_s = time.monotonic()
    asked = [(probe, _Asked(probe)) for probe in probes]
    return [Section(probe.title, one.answer(begun_s + probe.limit_s - time.monotonic())) for probe, one in asked]


class _Asked:
    """A probe at work on a thread that the process may leave behind."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._found: Optional[tuple[Finding, ...]] = None
        self._thread = threading.Thread(target=self._look, name=f"doctor {probe.title}", daemon=True)
        self._thread.start()

    def answer(self, patience_s: float) -> tuple[Finding, ...]:
        self._thread.join(max(0.0, patience_s))
        found = self._found  # once: the thread may answer late
        if found is None:
            fact = f"no answer within {self._probe.limit_s:g} s"
            return (Finding(self._probe.title, FAULT, fact, _NO_ANSWER),)
        return found

    def _look(self) -> None:
        try:
            self._found = tuple(self._probe.look())
        except Exception as error:  # whatever it is, it is worth a line and not the page
            fact = f"{type(error).__name__}: {error}"
            self._found = (Finding(self._probe.title, FAULT, fact, _OUR_DEFECT),)


def child(words: Sequence[str], limit_s: float, environ: Mapping[str, str]) -> Answer:
    """Runs a program with empty input and its own process group, which is killed at the deadline.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
        code: Optional[int] = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        out, err, code = b"", b"", None
    return Answer(code, *(part[-_MOST_BYTES:].decode(errors="replace") for part in (out, err)))


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # it sits in the kernel; nobody can wait for that
        process.communicate(timeout=1.0)
