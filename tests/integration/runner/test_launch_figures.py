"""What a launcher shows of a running job: its status, metrics and summary, where one rank is slow on purpose."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .conftest import PATIENCE_S, Horovodrun

WORKER = [sys.executable, str(Path(__file__).parent / "straggler_worker.py")]


def status(horovodrun: Horovodrun, *words: str) -> str:
    command = [sys.executable, "-m", "horovod.runner", "--status", *words]
    done = subprocess.run(command, env=horovodrun.environ, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=True)
    return done.stdout.decode()


def jobs(horovodrun: Horovodrun) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(status(horovodrun, "--status-format", "json"))["jobs"]
    return found


def until_connected(horovodrun: Horovodrun, pid: int, ranks: int = 2) -> dict[str, Any]:
    """The job of this launcher, once so many of its ranks have done something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = [job for job in jobs(horovodrun) if job["pid"] == pid]
        if found and sum(row["steps"] > 0 for row in found[0]["ranks"]) == ranks:
            return found[0]
    raise AssertionError(f"the ranks did not come: {found}")


def a_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scraped(port: int, address: str = "127.0.0.1") -> dict[tuple[str, str, str], float]:
    """Values by name, rank and operation, as Prometheus' own parser reads them."""
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("rank", ""), sample.labels.get("operation", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def running(horovodrun: Horovodrun) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A job of two ranks, of which rank 1 is slow, and the port of its metrics."""
    port = a_free_port()
    process = horovodrun.start(["-np", "2", "--summary", "--metrics-port", str(port)], [*WORKER, "60"])
    yield process, port
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert list(horovodrun.place.iterdir()) == []


def test_status_and_metrics_name_the_straggler(
    horovodrun: Horovodrun, running: tuple[subprocess.Popen[bytes], int]
) -> None:
    process, port = running
    job = until_connected(horovodrun, process.pid)
    assert (job["pid"], job["size"], job["elastic"]) == (process.pid, 2, False)
    job = until_connected(horovodrun, process.pid)
    slow = job["ranks"][1]
    assert job["straggler"]["rank"] == 1, job
    assert job["ranks"][0]["waiting"] > slow["waiting"] + 0.2
    assert slow["steps_per_second"] > 1
    assert slow["bytes_per_second"] > 4000

    jobs = re.split(r"^(?=job )", status(horovodrun), flags=re.M)  # other tests' too, where they are over hosts
    text = next(job for job in jobs if job.startswith(f"job {process.pid}:"))
    assert re.search(r"^Rank 1 on \S+ is (probably )?the slowest: it waits for others", text, re.M), text
    assert len(re.findall(r"^ +[01]  ", text, re.M)) == 2, text

    samples = scraped(port)
    assert samples["horovod_ranks", "", ""] == 2
    assert samples["horovod_straggler", "1", ""] == 1
    assert samples["horovod_waiting_seconds_total", "0", ""] > samples["horovod_waiting_seconds_total", "1", ""]
    assert samples["horovod_bytes_total", "1", "allreduce"] > 4000
    assert samples["horovod_errors_total", "0", ""] == 0


def test_the_summary_names_the_straggler(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 2 --summary", [*WORKER, "2"])
    assert done.returncode == 0, done.stderr
    text = done.stderr.decode()
    assert re.search(r"rank 0: computing \d+ %, waiting for others \d+ %, transferring \d+ % of [\d.]+ s, ", text), text
    assert "Rank 1 on " in text and "the slowest" in text
    assert horovodrun("-np 2", [*WORKER, "0"]).stderr == b""


def test_on_a_terminal_the_status_comes_again_until_q(
    horovodrun: Horovodrun, running: tuple[subprocess.Popen[bytes], int]
) -> None:
    until_connected(horovodrun, running[0].pid)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "horovod.runner", "--status"], horovodrun.environ)
    seen = b""
    deadline = time.monotonic() + PATIENCE_S
    while seen.count(b"\x1b[H\x1b[J") < 2 and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 1 << 16)
    os.write(terminal, b"q")
    while select.select([terminal], [], [], PATIENCE_S)[0]:
        try:
            if not os.read(terminal, 1 << 16):
                break
        except OSError:  # EIO: it has ended
            break
    os.close(terminal)
    _, ended = os.waitpid(pid, 0)
    assert ended == 0
    assert b"steps/s" in seen


def test_the_metrics_are_served_where_they_should_be(horovodrun: Horovodrun) -> None:
    port = a_free_port()
    options = ["-np", "1", "--metrics-port", str(port), "--metrics-address", "127.0.0.2"]
    process = horovodrun.start(options, [sys.executable, "-c", "print(1, flush=True); import time; time.sleep(60)"])
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert scraped(port, "127.0.0.2")["horovod_ranks", "", ""] == 0
        with pytest.raises(OSError, match="refused"):
            scraped(port)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def test_an_occupied_port_is_said_before_ranks_start(horovodrun: Horovodrun, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = horovodrun.python(f"-np 2 --metrics-port {port}", f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert done.returncode == 2
    assert f"nothing can listen on port {port} of 127.0.0.1: Address already in use".encode() in done.stderr
    assert not (tmp_path / "ran").exists()


def test_without_the_library_the_error_says_what_to_install(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('not here')\n")
    horovodrun.environ["PYTHONPATH"] = f"{tmp_path}:{horovodrun.environ['PYTHONPATH']}"
    done = horovodrun.python("-np 1 --metrics-port 9400", "pass")
    assert done.returncode == 2
    assert b"pip install 'prometheus_client>=0.19'" in done.stderr


def test_without_jobs_the_status_says_so(horovodrun: Horovodrun) -> None:
    # Other tests' jobs are this user's too.
    assert "job" in status(horovodrun).lower()
    assert isinstance(jobs(horovodrun), list)


def test_ranks_that_never_connect_are_no_trouble(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "2"], [sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [job for job in jobs(horovodrun) if job["pid"] == process.pid]):
            assert time.monotonic() < deadline
        assert found[0]["ranks"] == []
        assert "no rank has called hvd.init() yet" in status(horovodrun)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
