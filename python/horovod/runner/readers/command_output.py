"""The output of a program of others, such as a scheduler's: bounded in time and length.

Used by `allocations` and `launchers.mpirun`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

from horovod._core.errors import InvalidArgumentError

MAX_BYTES: Final = 16 << 20


def answer_of(command: Sequence[str], consequence: str, patience_s: float = 10.0) -> str:
    """Standard output of a command.

    Args:
        command: the program and its words.
        consequence: what is unknown without the output, and the remedy; ends the messages.
        patience_s: the longest wait for the answer.

    Raises:
        InvalidArgumentError: it cannot be run, fails, does not answer in time, or with something else than text.
    """
    line = " ".join(command)
    try:
        code, out, err = _run(command, patience_s)
    except subprocess.TimeoutExpired as error:
        raise InvalidArgumentError(f"{line} has not answered for {patience_s:.0f} s, so {consequence}") from error
    except OSError as error:
        raise InvalidArgumentError(f"{line} cannot be run ({error.strerror}), so {consequence}") from error
    if code:
        said = " ".join(err.decode("utf-8", "replace").split())[:200]
        raise InvalidArgumentError(
            f"{line} failed with code {code}{' (' + said + ')' if said else ''}, so {consequence}"
        )
    return text_of(out[:MAX_BYTES], f"The output of {line}")


def _run(command: Sequence[str], patience_s: float) -> tuple[int, bytes, bytes]:
    """Exit code and both outputs. A command that does not end in time is killed with its process group, as it may be a
    script that waits for another program."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=patience_s)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, out, err


def text_of(data: bytes, where: str) -> str:
    """Bytes that must be text.

    Raises:
        InvalidArgumentError: they are not.
    """
    try:
        return data.decode("utf-8")
    except ValueError as error:
        raise InvalidArgumentError(f"{where} is not text: {error}.") from error
