"""Virtual environments besides the development environment: for launchers of others, and for suites that need other
versions than it has. One is a folder and the packages in it; it is made once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Optional

_READY = "ready"  # in the folder: what was installed; written last
_INSTALL_S = 600.0
SILENCE_S = "20"  # after which a server that says nothing is given up


def run(command: list[str], environ: Optional[dict[str, str]] = None) -> str:
    """Runs a command silently. Returns the reason of a failure, or ""."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environ or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_S,
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} took more than {_INSTALL_S:.0f} s"
    except OSError as error:
        return str(error)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines[-1] if lines else f"{command[0]} exited with {done.returncode}")


def provide(folder: Path, packages: str) -> str:
    """Makes an environment with these packages unless it is there. Returns the reason of a failure, or ""."""
    ready = folder / _READY
    if ready.is_file() and ready.read_text() == packages:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=False)
    except OSError as error:
        return str(error)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    problem = run([*pip, "install", "--quiet", "--retries", "1", "--timeout", SILENCE_S, *packages.split()])
    if problem:
        shutil.rmtree(folder, ignore_errors=True)
        return f"pip install {packages}: {problem}"
    ready.write_text(packages)
    return ""
