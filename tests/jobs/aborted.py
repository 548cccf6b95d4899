"""A rank whose operations on a GPU have been aborted, as its states see it; without a GPU."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from horovod._core.life import session
from horovod._core.life.planes import gpu_plane


@contextlib.contextmanager
def aborted_on_a_gpu() -> Iterator[None]:
    """The core has a GPU in use, and has failed while that was still at work. The session is whole again afterwards."""
    current = session.require()
    engine: Any = current.engine
    before = gpu_plane.device_in_use
    gpu_plane.device_in_use = lambda session: 0
    engine.describe = lambda: json.dumps({"failed": True})
    try:
        yield
    finally:
        del engine.describe
        gpu_plane.device_in_use = before
