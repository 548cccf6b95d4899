"""From the command that the user wrote to a program that can be executed.

Used by `launchers.local`. It looks for files, and opens a script to see its first bytes.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Optional

from horovod._core.errors import InvalidArgumentError


def executable(command: Sequence[str], path: Optional[str], cwd: str) -> tuple[str, tuple[str, ...]]:
    """The program's path, and its argument vector. A script `train.py` that cannot run by itself gets this Python.

    Args:
        command: the program and its arguments.
        path: where programs are looked for, as $PATH has it.
        cwd: where the command will run.

    Raises:
        InvalidArgumentError: there is no such program.
    """
    program = command[0]
    if program.endswith(".py") and " " not in program and not _runs_by_itself(resolve(program, path, cwd)):
        if os.path.isfile(os.path.join(cwd, program)):
            return sys.executable, (sys.executable, *command)
        raise InvalidArgumentError(f"The script {program!r} is not found in {cwd}.")
    found = resolve(program, path, cwd)
    if found is None:
        raise InvalidArgumentError(f"The command {program!r} {_why_not(program, cwd)}")
    return found, tuple(command)


def resolve(program: str, path: Optional[str], cwd: str) -> Optional[str]:
    """Where the program is, as a shell would find it; None when it is not there or not executable."""
    if os.sep in program:
        found = os.path.join(cwd, program)
        return found if os.access(found, os.X_OK) and not os.path.isdir(found) else None
    return shutil.which(program, path=path)


def _why_not(program: str, cwd: str) -> str:
    """What is wrong with a program that is not to be had, and what to do."""
    place = os.path.join(cwd, program)
    if os.path.isdir(place):
        return "is a folder; write the program that shall run."
    if os.path.exists(place):
        return f"is not executable; make it so (chmod +x {shlex.quote(program)}), or write what runs it before it."
    if " " in program:
        return f"is not found. Leave the quotes out, or have a shell read them: sh -c {shlex.quote(program)}"
    if "=" in program:
        return f"is not found. Variables come before horovodrun, or write: env {shlex.quote(program)} ..."
    return "is not found."


def _runs_by_itself(script: Optional[str]) -> bool:
    if script is not None:
        with contextlib.suppress(OSError), open(script, "rb") as file:
            return file.read(2) == b"#!"
    return False
