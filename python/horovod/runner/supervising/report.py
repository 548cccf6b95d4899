"""Which rank failed first, and the story of it in words. Pure: from what was seen to a culprit, a text, a code.

Used by `supervision`, `launchers` and what tells users of a job's end. A rank whose peer has died fails too, often
within a millisecond: it must not be mistaken for the cause. Nor must one that was left alone by a rank which ended
early, with code 0.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Final, NamedTuple, Optional

# A rank that ends this long after the first failure may still be its cause: a Python process needs that long to unwind.
_SAME_MOMENT_S: Final = 1.0
# The errors of a rank that suffers from another one's end; only the last word of a traceback counts.
_VICTIM: Final = re.compile(rb"^[\w.]*\b(PeerLostError|ShutdownError)\b")
_RANK: Final = re.compile(rb"\b[Rr]ank ([0-9]{1,7})\b")


class Exit(NamedTuple):
    """How one rank ended.

    Attributes:
        rank, hostname, pid: which process.
        status: as `os.waitpid` gives it.
        at_s: when, on the clock of `started_s`.
        started_s: when the job started.
        stopped_by_us: the launcher had sent it a signal before.
        tail: last lines of its stderr.
        peak_bytes: the most memory that its largest process has had; 0: not known.
    """

    rank: int
    hostname: str
    pid: int
    status: int
    at_s: float
    started_s: float = 0.0
    stopped_by_us: bool = False
    tail: tuple[bytes, ...] = ()
    peak_bytes: int = 0

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
        """It ended badly, and not because we ended it."""
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
    return not ended.signal_number and bool(_last_error(ended))


def _last_error(ended: Exit) -> bytes:
    """The line by which a victim says whom it has lost; empty when it is none."""
    lines = [line for line in ended.tail if line.strip()]
    return next((line for line in reversed(lines[-5:]) if _VICTIM.match(line)), b"")


def left_early(exits: Sequence[Exit], ended: Exit) -> Optional[Exit]:
    """The rank whose end with code 0 made this one fail; None when that is not what has happened.

    Args:
        exits: in the order in which the ranks ended.
        ended: the culprit, which may be a victim: there is no other failure then.
    """
    if not _is_victim(ended):
        return None
    named = {int(number) for number in _RANK.findall(_last_error(ended))}
    # A rank leaves its connections before its process ends: a rank that lost it may end first.
    return next(
        (
            other
            for other in exits
            if other.code == 0 and other.rank in named and other.at_s - ended.at_s <= _SAME_MOMENT_S
        ),
        None,
    )


def story(exits: Sequence[Exit], ended: Exit, with_last_lines: bool = True) -> str:
    """One sentence on how the job ended, and the culprit's last words.

    Args:
        exits: of all ranks.
        ended: the culprit.
        with_last_lines: False when they were just written: they are not repeated then.
    """
    early = left_early(exits, ended)
    text = f"{_who(ended)} {_how(ended)} {_after(ended)}"
    if early is not None:
        text = f"{_who(early)} ended with code 0 {_after(early)}, while others still needed it; then {text}"
    text += f"{_others(exits, ended)}."
    if not ended.tail:
        return text + " It wrote nothing to stderr."
    if not with_last_lines:
        return f"{text} The last lines of rank {ended.rank} are above."
    whose = "its" if early is None else f"rank {ended.rank}'s"
    lines = "\n".join("  " + line.decode("utf-8", errors="replace") for line in ended.tail)
    return f"{text} Last lines of {whose} stderr:\n{lines}"


def _who(ended: Exit) -> str:
    return f"rank {ended.rank} ({ended.hostname}, pid {ended.pid})"


def _after(ended: Exit) -> str:
    return f"after {ended.at_s - ended.started_s:.1f} s"


def _others(exits: Sequence[Exit], ended: Exit) -> str:
    """What became of those that did not come to a good end either."""
    bad = [other for other in exits if other is not ended and other.code != 0]
    stopped = sum(other.stopped_by_us for other in bad)
    failed = len(bad) - stopped
    if failed and stopped:
        return f"; {_count(failed, False)} failed too, and {_count(stopped, False)} {_was(stopped)} then stopped"
    if failed:
        return f"; {_count(failed, failed == len(exits) - 1)} failed too"
    if stopped:
        return f"; {_count(stopped, stopped == len(exits) - 1)} {_was(stopped)} then stopped"
    return ""


def _count(ranks: int, all_others: bool) -> str:
    if ranks == 1:
        return "the other rank" if all_others else "1 other rank"
    return f"the other {ranks} ranks" if all_others else f"{ranks} other ranks"


def _was(ranks: int) -> str:
    return "was" if ranks == 1 else "were"


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
