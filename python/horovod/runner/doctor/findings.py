"""What a probe answers: lines under a heading, as values. Pure; all of `doctor` uses them."""

from __future__ import annotations

from typing import Callable, Final, NamedTuple

WORKS: Final = "works"
ABSENT: Final = "absent"  # not there, and nobody has asked for it
FAULT: Final = "fault"  # somebody will run into it
FACT: Final = "fact"  # neither good nor bad


class Finding(NamedTuple):
    """One line.

    Attributes:
        name: what it is about.
        state: one of the four above.
        fact: what was found; of what does not work, why not.
        remedy: of a fault, what to do.
    """

    name: str
    state: str
    fact: str = ""
    remedy: str = ""


class Section(NamedTuple):
    """The findings of one probe."""

    title: str
    findings: tuple[Finding, ...]


class Probe(NamedTuple):
    """One question to this machine.

    Attributes:
        title: heading of its section.
        look: answers; it may take its time, and may fail.
        limit_s: seconds to wait for its answer.
    """

    title: str
    look: Callable[[], list[Finding]]
    limit_s: float


def size_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
