"""Starts a program on two ranks by the project's own launcher and collects the rows that it tells.

Used by the probes of what this version does on a GPU. Needs a built core (`make build`, or HOROVOD_LIBRARY) and torch
with CUDA.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from libraries import Missing

PACKAGE = Path(__file__).resolve().parent.parent.parent / "python"
_MARK = "RESULT "


def rows_of(
    program: str, timeout_s: float, *words: str, ranks: int = 2, variables: Optional[Mapping[str, str]] = None
) -> tuple[list[list[str]], str]:
    """Runs a program; its rows, and a word on how it ended.

    Args:
        program: its file.
        timeout_s: after so long it is stopped.
        words: for its command line.
        ranks: how many.
        variables: of their environment, besides ours.

    Raises:
        Missing: there is no core or no torch with CUDA.
    """
    paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
    launched = [sys.executable, "-m", "horovod.runner", "-np", str(ranks)]
    done = subprocess.run(
        [*launched, sys.executable, "-B", os.path.abspath(program), *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **(variables or {}), "PYTHONPATH": os.pathsep.join(paths)},
    )
    rows = [json.loads(text) for _, mark, text in (line.partition(_MARK) for line in done.stdout.splitlines()) if mark]
    if done.returncode and not rows and "ImportError" in done.stderr:
        raise Missing(done.stderr.strip().splitlines()[-1])
    return rows, f"Exit code {done.returncode}. {done.stderr[-3000:] if done.returncode else ''}".strip()


def tell(*texts: object) -> None:
    """A row, told by a rank."""
    print(_MARK + json.dumps([str(text) for text in texts]), flush=True)
