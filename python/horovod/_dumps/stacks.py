"""Whose code a frame is, and stacks as text: Python's own of a process that could tell no more. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final, Optional

from horovod._dumps.values import HOROVOD, OTHER, USER, Frame, Thread

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY: Final = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED: Final = re.compile(r"[\\/](site|dist)-packages[\\/]")
# What `faulthandler` writes, from C, whatever Python does.
_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+(?: \[(.*)\])? \(most recent call first\):")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def owner(file: str) -> str:
    """Whose code stands in this file."""
    if file.startswith(_PACKAGE):
        return HOROVOD
    if file.startswith((_LIBRARY, "<frozen ")) or _INSTALLED.search(file):
        return OTHER
    return USER


def users_frame(frames: Iterable[Frame]) -> Optional[Frame]:
    """The innermost line of the user's own code."""
    found = None
    for frame in frames:
        found = frame if frame.owner == USER else found
    return found


def from_faulthandler(text: str) -> tuple[Thread, ...]:
    """The threads of the last stacks in what `faulthandler` has written, the thread that the signal met being the
    main one, as is the rule."""
    found: list[tuple[str, bool, list[Frame]]] = []
    for line in text.splitlines():
        head, level = _THREAD.fullmatch(line), _FRAME.fullmatch(line)
        if head:
            found.append((head.group(1) or "", line.startswith("Current"), []))
        elif level and found:
            file = level.group(1)
            found[-1][2].append(Frame(file, int(level.group(2)), level.group(3), owner(file)))
    if found and not any(main for _, main, _ in found):
        found[-1] = (found[-1][0], True, found[-1][2])
    return tuple(Thread(name, main, tuple(reversed(frames))) for name, main, frames in found)
