"""Kept for import paths that other people use: runs a short command of the shell."""

from __future__ import annotations

import subprocess
from typing import Optional


def execute(command: str) -> Optional[tuple[str, int]]:
    """What the command wrote (both streams) and its exit code; None when there is no shell to run it."""
    try:
        done = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.decode("utf-8", errors="replace"), done.returncode
