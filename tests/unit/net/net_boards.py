"""What the tests of boards wait for."""

from __future__ import annotations

import socket
import time

import pytest

from horovod._net.handshake.boards.board_link import BoardLink

SECRET = bytes(range(32))
PATIENCE_S = 20.0


def until(board: BoardLink, key: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while (value := board.get(key)) is None:
        assert time.monotonic() < deadline, board.keys()
        board.wait(0.1)
    return value


def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Waits for a line of the log, which a thread of its own writes."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.01)


def refuses(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) != 0
