"""`horovodrun --status` asks launchers that answer, that do not, and that have gone."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from horovod.runner.live.figures import Figures, Reading
from horovod.runner.showing import status
from horovod.runner.showing.desk import Snapshot, answer

PATIENCE_S = 10.0
JOB: dict[str, Any] = {"pid": 7, "command": "python train.py", "size": 1, "elastic": False, "seconds": 75.0}


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Three launchers that listen; nobody serves them yet."""
    with contextlib.ExitStack() as undo:
        made = [undo.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
        for number, each in enumerate(made):
            each.bind(str(tmp_path / f"{number}"))
            each.listen()
            each.settimeout(PATIENCE_S)
        monkeypatch.setattr(status.runtime_directory, "listening", lambda: sorted(tmp_path.iterdir()))
        monkeypatch.setattr(status, "_abstract", list)
        yield made


def answering(listener: socket.socket) -> threading.Thread:
    """Answers each question of one client with a second more."""

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            seconds = 10
            while client.recv(64):
                figures = Figures(steps=seconds, wall_ns=seconds * 10**9)
                snapshot = Snapshot(0.0, {0: Reading(figures, 0.0, "alpha")}, frozenset({0}))
                client.sendall(json.dumps(answer(JOB, snapshot)).encode() + b"\n")
                seconds += 1

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_launchers_that_do_not_answer_hold_up_no_other(
    places: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_ANSWER_S", 0.5)
    thread = answering(places[2])
    with contextlib.closing(status._Watch()) as watch:
        began_s = time.monotonic()
        watch.look()
        watch.look()
        assert time.monotonic() - began_s < 3.0  # one deadline for all
        (launcher,) = watch.answered()
        (row,) = launcher.rows()
        assert (row.seconds, row.steps) == (1.0, 1)
        assert watch.silent() == [os.getpid()] * 2
        page = status._page(watch)
        assert page.startswith("job 7: python train.py\n")
        assert page.count(f"job {os.getpid()}: its launcher does not answer\n") == 2
        # One lets its client go, as a stopped one does in the end, and is still there; the other has ended.
        places[0].accept()[0].close()
        client, _ = places[1].accept()
        places[1].close()
        client.close()
        watch.look()
        assert len(watch.answered()) == len(watch.silent()) == 1
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_launcher_that_answers_late_is_asked_again(
    places: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "_ANSWER_S", 0.1)
    with contextlib.closing(status._Watch()) as watch:
        watch.look()
        watch.look()  # it still owes the first answer
        assert len(watch.silent()) == 3
        answering(places[1])
        monkeypatch.setattr(status, "_ANSWER_S", 1.0)
        watch.look()
        assert [each.job["pid"] for each in watch.answered()] == [7]
        assert len(watch.silent()) == 2
