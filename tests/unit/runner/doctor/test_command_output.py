"""Programs of others that are asked something, and do not answer."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.readers import command_output


def test_nothing_is_left_of_a_program_that_does_not_answer(tmp_path: Path) -> None:
    held = tmp_path / "held"
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    script = tmp_path / "mpirun"
    script.write_text(f"#!/bin/sh\nexec 3>{held}\necho up >&3\nsleep 1000\n")
    script.chmod(0o755)
    with pytest.raises(InvalidArgumentError, match=r"mpirun --version has not answered for 2 s, so nothing works"):
        command_output.answer_of([str(script), "--version"], "nothing works.", patience_s=2.0)
    assert os.read(reader, 64) == b"up\n"
    # The script's own child has held the pipe, too.
    assert select.select([reader], [], [], 10.0)[0], "something is left"
    assert os.read(reader, 64) == b""
    os.close(reader)
