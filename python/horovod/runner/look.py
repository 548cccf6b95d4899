"""How the output of a rank looks on the launcher's streams: shown or not, in which colour, behind which prefix. Pure.

Used by `output` and `launchers.destinations`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Callable, Final, NamedTuple, Optional

# Cyan, green, yellow, magenta, blue, then the bright ones: red stays for errors, black and white for the paper.
_COLORS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_PLAIN: Final = b"\x1b[0m"


class Look(NamedTuple):
    """See the head of the file.

    Attributes:
        shown: False: its lines go to no stream of the launcher's.
        colored: the prefix has the rank's colour.
        prompts: a line is shown before it ends, for who is to answer it.
        clock: seconds since the epoch, to put the time before each line; None: no time.
    """

    shown: bool = True
    colored: bool = False
    prompts: bool = False
    clock: Optional[Callable[[], float]] = None

    def prefix(self, rank: int, stream: str) -> bytes:
        """What stands before a line that is written now."""
        when = time.asctime(time.localtime(self.clock())) if self.clock else ""
        text = f"{when}[{rank}]<{stream}>:".encode()
        if not self.colored:
            return text
        return b"\x1b[%dm%s%s" % (_COLORS[rank % len(_COLORS)], text, _PLAIN)


def takes_colors(environ: Mapping[str, str], on_terminal: bool) -> bool:
    """Whether what is written there may have colours.

    Args:
        environ: of the launcher: any value of NO_COLOR says no (https://no-color.org), and so does a terminal that
            knows no colours.
        on_terminal: it is one.
    """
    return on_terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def takes_moves(environ: Mapping[str, str]) -> bool:
    """Whether a terminal moves its cursor as it is asked to.

    Args:
        environ: of the launcher. What stands behind `!` in a notebook has a terminal that shows such requests as text;
            the kernel's variable tells.
    """
    return environ.get("TERM") != "dumb" and "JPY_PARENT_PID" not in environ
