"""From the command that the user wrote to a program that can be executed.

Used by `launchers.local`. It looks for files, and opens a script to see its first bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Final, Optional

from horovod._core.errors import InvalidArgumentError

SHELL: Final = "/bin/sh"
_HEAD_BYTES: Final = 4096
_PYTHON: Final = re.compile(r"python(3(\.[0-9]+)?)?")


def executable(
    command: Sequence[str], path: Optional[str], cwd: str, runs_here: bool = True
) -> tuple[str, tuple[str, ...]]:
    """The program's path, and its argument vector. A script `train.py` that cannot run by itself gets this Python,
    any other text the shell, as from a shell.

    Args:
        command: the program and its arguments.
        path: where programs are looked for, as $PATH has it.
        cwd: where the command will run.
        runs_here: on this machine only; else another one may have the script that a Python is given.

    Raises:
        InvalidArgumentError: there is no such program or script.
    """
    program = command[0]
    if program.endswith(".py") and " " not in program and not _runs_by_itself(resolve(program, path, cwd)):
        if os.path.isfile(os.path.join(cwd, program)):
            return sys.executable, (sys.executable, *command)
        raise _no_script(program, cwd)
    found = resolve(program, path, cwd)
    if found is None:
        raise InvalidArgumentError(f"The command {program!r} {_why_not(program, cwd)}")
    script = _script_of_python(command)
    # Each rank would say it by itself.
    if runs_here and script and not os.path.exists(os.path.join(cwd, script)):
        raise _no_script(script, cwd)
    if is_for_the_shell(found):
        return SHELL, (SHELL, found, *command[1:])
    return found, tuple(command)


def resolve(program: str, path: Optional[str], cwd: str) -> Optional[str]:
    """Where the program is, as a shell would find it; None when it is not there or not executable."""
    if os.sep in program:
        found = os.path.join(cwd, program)
        return found if _is_executable(found) else None
    places = os.defpath if path is None else path
    fitting = (os.path.join(place, program) for place in (places.split(os.pathsep) if places else ()))
    return next(filter(_is_executable, fitting), None)


def why_not_executed(program: str, path: Optional[str], cwd: str, error: int) -> str:
    """What the kernel's refusal of a program that is there comes from, and what to do; empty when that is not known.

    Args:
        program, path, cwd: as for `resolve`.
        error: the error number.
    """
    head = _head(resolve(program, path, cwd) or "") or b""
    if error == errno.ENOENT and head.startswith(b"#!"):
        line = head[2:].partition(b"\n")[0].decode("utf-8", "replace")
        if line.endswith("\r"):
            return f"its first line, {'#!' + line!r}, ends with a carriage return; store it with Unix line ends"
        interpreter = (line.split() or [""])[0]
        if not os.path.exists(os.path.join(cwd, interpreter)):
            return f"its first line names {interpreter!r}, which does not exist; put the interpreter before the program"
    return ""


def _script_of_python(command: Sequence[str]) -> str:
    """The script of `python train.py`; empty for any other command."""
    is_script = len(command) > 1 and command[1].endswith(".py") and not command[1].startswith("-")
    return command[1] if is_script and _PYTHON.fullmatch(os.path.basename(command[0])) else ""


def _no_script(script: str, cwd: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"The script {script!r} is not found in {cwd}.")


def _is_executable(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _why_not(program: str, cwd: str) -> str:
    """What is wrong with a program that is not to be had, and what to do."""
    place = os.path.join(cwd, program)
    if os.path.isdir(place):
        return "is a folder; name the program to run."
    if os.path.exists(place):
        return f"is not executable; run chmod +x {shlex.quote(program)}, or put its interpreter before it."
    if " " in program:
        return f"is not found. Leave the quotes out, or have a shell read them: sh -c {shlex.quote(program)}"
    if "=" in program:
        return f"is not found. Variables come before horovodrun, or write: env {shlex.quote(program)} ..."
    return "is not found."


def is_for_the_shell(program: str) -> bool:
    """It is a text that does not say what runs it, which the kernel refuses."""
    head = _head(program)
    return head is not None and not head.startswith(b"#!") and b"\0" not in head


def _runs_by_itself(script: Optional[str]) -> bool:
    return script is not None and (_head(script) or b"").startswith(b"#!")


def _head(path: str) -> Optional[bytes]:
    """The first bytes of a file; None when it cannot be read, or is none."""
    if not os.path.isfile(path):
        return None
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(_HEAD_BYTES)
    return None
