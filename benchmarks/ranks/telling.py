"""What a rank of a benchmark tells: lines of JSON in a file of its own, in the folder that BENCH_FOLDER names."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


class Told:
    """Called with what there is to tell; the line is in the file when the call returns."""

    def __init__(self) -> None:
        name = f"rank.{os.environ.get('HOROVOD_HOSTNAME', '')}.{os.getpid()}"
        self._file = Path(os.environ["BENCH_FOLDER"], name).open("a", buffering=1)  # noqa: SIM115 - until the end

    def __call__(self, what: str, **more: object) -> None:
        self._file.write(json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n")
