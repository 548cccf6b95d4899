"""The style of a rank's lines on the launcher's streams: shown or not, in which colour, behind which prefix. Pure.

Used by `output` and `launchers.destinations`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Callable, Final, NamedTuple, Optional

# Cyan, green, yellow, magenta, blue, then the bright ones: red stays for errors, black and white for the paper.
_COLORS: Final = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_PLAIN: Final = b"\x1b[0m"


class LineStyle(NamedTuple):
    """See the head of the file.

    Attributes:
        shown: False: the rank's lines are not written to the launcher's streams.
        colored: the prefix has the rank's colour.
        prompts: a line is shown before it ends, so that the user can answer it.
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
    """Whether output may have colours.

    Args:
        environ: of the launcher: any value of NO_COLOR says no (https://no-color.org), and so does a terminal that
            knows no colours.
        on_terminal: the output goes to a terminal.
    """
    return on_terminal and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def moves_cursor(environ: Mapping[str, str]) -> bool:
    """Whether the terminal obeys requests to move its cursor.

    Args:
        environ: of the launcher. A command after `!` in a notebook has a terminal that shows such requests as text; it
            is known by a variable of the kernel.
    """
    return environ.get("TERM") != "dumb" and "JPY_PARENT_PID" not in environ
