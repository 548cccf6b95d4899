"""A launcher that is asked how its job is goes on where its machine has no room; the command line of `--status`."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from pathlib import Path

import pytest

from horovod._dumps import paths
from horovod.runner import cli
from horovod.runner.job import effective_settings, make_job
from horovod.runner.live.figures import Figures, Reading
from horovod.runner.showing.desk import Desk


def listening(desk: Desk, place: Path, **settings: object) -> None:
    job = make_job(effective_settings({"num_proc": 2, **settings}, "argument", {}), ["true"], {}, "/")
    directory = os.open(place, os.O_RDONLY)
    try:
        desk.listen(job, directory)
    finally:
        os.close(directory)


def test_a_client_without_a_thread_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with contextlib.closing(Desk()) as desk:
        listening(desk, tmp_path)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        for _ in range(10):  # more than there may be at a time: each gives its place back
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(10.0)
                client.connect(str(tmp_path / paths.STATUS))
                assert select.select([desk.fd], [], [], 10.0)[0]
                desk.serve(dict, ())
                assert client.recv(1) == b""
        monkeypatch.undo()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10.0)
            client.connect(str(tmp_path / paths.STATUS))
            client.sendall(b"?")
            while not select.select([client], [], [], 0.01)[0]:
                desk.serve(dict, ())
            assert client.recv(100).startswith(b'{"layout"')


def test_a_job_goes_on_without_a_socket_for_its_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / paths.STATUS).touch()
    with contextlib.closing(Desk()) as desk, caplog.at_level(logging.WARNING, "horovod.runner"):
        listening(desk, tmp_path)
        desk.serve(dict, ())
    assert "cannot open its socket for horovodrun --status" in caplog.text
    assert "The job runs without status." in caplog.text


def test_the_size_of_an_elastic_job_is_what_it_is_now(tmp_path: Path) -> None:
    with contextlib.closing(Desk()) as desk:
        listening(desk, tmp_path, min_num_proc=1)
        assert (desk.job["size"], desk.job["elastic"]) == (2, True)
        asking = threading.Thread(target=desk.ask)
        asking.start()
        assert select.select([desk.fd], [], [], 10.0)[0]
        desk.serve(lambda: {each: Reading(Figures(), 0.0) for each in range(3)}, {0, 1, 2})
        asking.join()
        assert desk.job["size"] == 3


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["-np", "2", "--status", "python", "train.py"], "python train.py"),
        (["--status", "train.py"], "train.py"),
        (["--status", "-np", "2"], "-np"),
    ],
)
def test_status_starts_no_job_and_says_so(words: list[str], given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err == (
        f"horovodrun: error: --status shows the jobs that run and starts none, but {given} was given. To start a job, "
        "leave --status out; then run horovodrun --status in another terminal.\n"
    )
