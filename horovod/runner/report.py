"""Which rank failed first, and the story of it in words. Pure: from what was seen to a culprit, a text, a code.

Used by `launchers` and `function`. A rank whose peer has died fails too, often within a millisecond: it must not be
mistaken for the cause.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Optional

# A rank that ends this long after the first failure may still be its cause: a Python process needs that long to unwind.
_SAME_MOMENT_S: Final = 1.0
# The errors of a rank that suffers from another one's end; only the last word of a traceback counts.
_VICTIM: Final = re.compile(rb"^[\w.]*\b(PeerLostError|ShutdownError)\b")


@dataclass(frozen=True)
class Exit:
    """How one rank ended.

    Attributes:
        rank, hostname, pid: who.
        status: as `os.waitpid` gives it.
        at_s: when, on the clock of `started_s`.
        started_s: when the job started.
        stopped_by_us: the launcher had sent it a signal before.
        tail: last lines of its stderr.
    """

    rank: int
    hostname: str
    pid: int
    status: int
    at_s: float
    started_s: float = 0.0
    stopped_by_us: bool = False
    tail: tuple[bytes, ...] = ()

    @property
    def signal_number(self) -> int:
        """The signal that ended it, or 0."""
        return self.status & 0x7F

    @property
    def code(self) -> int:
        """What a shell would report: the exit code, or 128 + signal."""
        return 128 + self.signal_number if self.signal_number else self.status >> 8

    @property
    def failed(self) -> bool:
        """It ended badly, and not because we told it to."""
        return self.code != 0 and not self.stopped_by_us


def culprit(exits: Sequence[Exit]) -> Optional[Exit]:
    """The failure that came first.

    Among failures of about the same moment, ranks that only report the loss of another are passed over, and a death by
    signal, which nothing in Python causes by itself, comes before an exit code; then the order of deaths decides.

    Args:
        exits: in the order in which the ranks ended.
    """
    failures = [ended for ended in exits if ended.failed]
    if not failures:
        return None
    first = failures[0]
    together = [ended for ended in failures if ended.at_s - first.at_s <= _SAME_MOMENT_S]
    causes = [ended for ended in together if not _is_victim(ended)] or together
    killed = [ended for ended in causes if ended.signal_number]
    return (killed or causes)[0]


def _is_victim(ended: Exit) -> bool:
    lines = [line for line in ended.tail if line.strip()]
    return not ended.signal_number and any(_VICTIM.match(line) for line in lines[-5:])


def story(ended: Exit, stopped: int) -> str:
    """One sentence on how the job ended, and the culprit's last words.

    Args:
        ended: the culprit.
        stopped: how many other ranks did not come to a good end.
    """
    after = f"after {ended.at_s - ended.started_s:.1f} s"
    text = f"rank {ended.rank} ({ended.hostname}, pid {ended.pid}) {_how(ended)} {after}"
    if stopped:
        others = "1 other rank was" if stopped == 1 else f"{stopped} other ranks were"
        text += f"; the {others} then stopped"
    text += "."
    if not ended.tail:
        return text + " It wrote nothing to stderr."
    lines = "\n".join("  " + line.decode("utf-8", errors="replace") for line in ended.tail)
    return f"{text} Last lines of its stderr:\n{lines}"


def _how(ended: Exit) -> str:
    number = ended.signal_number
    if not number:
        return f"exited with code {ended.code}"
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    hint = ", as the kernel does when memory runs out," if number == signal.SIGKILL else ""
    return f"was killed by signal {number}{name}{hint}"
