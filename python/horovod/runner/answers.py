"""What a program of somebody else answers when it is asked something: bounded in time and length.

Used by `allocations` and `launchers.mpirun`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from horovod._core.errors import InvalidArgumentError

MAX_BYTES: Final = 16 << 20
_PATIENCE_S: Final = 10.0


def answer_of(command: Sequence[str], consequence: str) -> str:
    """Standard output of a command.

    Args:
        command: the program and its words.
        consequence: what is not known without the answer, and what to do; ends the messages.

    Raises:
        InvalidArgumentError: it cannot be run, fails, does not answer in time, or with something else than text.
    """
    line = " ".join(command)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise InvalidArgumentError(f"{line} has not answered for {_PATIENCE_S:.0f} s, so {consequence}") from error
    except OSError as error:
        raise InvalidArgumentError(f"{line} cannot be run ({error.strerror}), so {consequence}") from error
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise InvalidArgumentError(
            f"{line} failed with code {done.returncode}{' (' + said + ')' if said else ''}, so {consequence}"
        )
    return text_of(done.stdout[:MAX_BYTES], f"The answer of {line}")


def text_of(data: bytes, where: str) -> str:
    """Bytes that must be text.

    Raises:
        InvalidArgumentError: they are not.
    """
    try:
        return data.decode("utf-8")
    except ValueError as error:
        raise InvalidArgumentError(f"{where} is not text: {error}.") from error
