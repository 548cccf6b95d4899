"""What ranks tell a test: JSON lines, a file for each process in the folder that TEST_REPORTS names.

Files, because launchers mix, cut and drop the output of ranks that are killed. A rank that was started by hand, without
TEST_REPORTS, prints its lines.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

VARIABLE = "TEST_REPORTS"


def report(event: str, **fields: Any) -> None:
    """Writes an event; it is in the file when this returns."""
    line = json.dumps({"event": event, "pid": os.getpid(), "at": time.monotonic(), **fields}) + "\n"
    if VARIABLE not in os.environ:
        print(line, end="", flush=True)
        return
    with (Path(os.environ[VARIABLE]) / f"report.{os.getpid()}").open("a") as file:
        file.write(line)


def events_in(folder: Path) -> list[dict[str, Any]]:
    """What the ranks have said so far, in the order of time; without a line that is still being written."""
    lines = [line for path in folder.glob("report.*") for line in path.read_text().splitlines(keepends=True)]
    return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda event: float(event["at"]))
