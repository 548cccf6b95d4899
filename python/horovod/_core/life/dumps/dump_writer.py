"""One dump of this rank: what it waits for, what it has done last, where its threads stand.

Used by `dump_service`. It only looks: whatever the other threads do, they go on with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from types import FrameType
from typing import Optional

from horovod._core.life.dumps import call_sites
from horovod._core.life.session import Session
from horovod._dumps import values
from horovod._dumps.stacks import owner

_MOST_FRAMES = 200  # of one stack: a recursion without end has more


def take(session: Session, reason: str, directory: str) -> values.Dump:
    """A dump of this process.

    Args:
        session: whose rank and engine it is about.
        reason: what asked for it.
        directory: where the process was started.
    """
    data = json.loads(session.engine.dumps.text())
    pending = values.operations(
        [{**one, "call_site": call_sites.of(one["process_set"], one["name"])} for one in data["pending"]]
    )
    return values.Dump(
        rank=session.rank,
        size=session.size,
        host=session.hostname,
        pid=os.getpid(),
        directory=directory,
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        reason=reason,
        pending=pending,
        untold=int(data["untold"]),
        finished=values.operations(data["finished"]),
        process_sets=values.members(data["process_sets"]),
        threads=_threads(),
    )


def _threads() -> tuple[values.Thread, ...]:
    known = {thread.ident: thread for thread in threading.enumerate()}
    main = threading.main_thread().ident
    found = []
    for number, frame in sys._current_frames().items():
        if number == threading.get_ident():
            continue  # the one that writes this
        name = known[number].name if number in known else ""
        found.append(values.Thread(name, number == main, tuple(_stack(frame))))
    return tuple(found)


def _stack(innermost: Optional[FrameType]) -> Iterator[values.Frame]:
    frames: list[FrameType] = []
    while innermost is not None and len(frames) < _MOST_FRAMES:
        frames.append(innermost)
        innermost = innermost.f_back
    for frame in reversed(frames):
        code = frame.f_code
        # A frame between two lines has none.
        yield values.Frame(
            code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name, owner(code.co_filename)
        )
