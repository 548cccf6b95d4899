"""Warm ranks are to their jobs what cold ones are (tests/jobs/warm)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from jobs import Job, Place, python, run, run_well
from jobs.variables import environment
from jobs.warm import VARIABLE
from jobs.warm.frameworks import FRAMEWORKS, read_by_imports

QUICK, SLOW = ("numpy", "torch"), [pytest.mark.slow]
SEEN = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), "numpy" in sys.modules, __name__]))
print("err", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize("way", ["script", "-c", "-m"])
def test_a_rank_has_its_words_folder_variables_streams_and_exit_code(way: str, tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(SEEN)
    words = {"script": ["seen.py"], "-c": ["-c", SEEN], "-m": ["-m", "seen"]}[way]
    ended = run(python(*words, "a", "b c", warm="numpy"), {"GIVEN": "x"}, cwd=tmp_path)
    assert (ended.code, ended.stderr) == (3, "err\n")
    assert json.loads(ended.stdout) == [["a", "b c"], str(tmp_path), "x", True, "__main__"]


def test_a_rank_whose_variables_an_import_reads_starts_cold() -> None:
    code = "import sys; print('numpy' in sys.modules)"
    assert run_well(python("-c", code, warm="numpy")) == "True\n"
    assert run_well(python("-c", code, warm="numpy"), {"OMP_NUM_THREADS": "3"}) == "False\n"
    assert run_well(python("-c", code, warm="numpy"), {"PYTHONUNBUFFERED": "", "HOROVOD_CYCLE_TIME": "1"}) == "True\n"


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else SLOW) for name in FRAMEWORKS])
def test_ranks_of_every_framework_find_it_imported(name: str) -> None:
    if missing := [module for module in FRAMEWORKS[name].modules if not importlib.util.find_spec(module)]:
        pytest.skip(f"{missing[0]} is not installed.")
    code = f"import sys; print({set(FRAMEWORKS[name].modules)!r} <= set(sys.modules))"
    assert run_well(python("-c", code, warm=name), FRAMEWORKS[name].environ) == "True\n"


def test_a_rank_is_compiled_and_has_a_folder_for_temporary_files_as_a_cold_one(tmp_path: Path) -> None:
    code = """
import tempfile
def f(x: int): pass
print(f.__annotations__["x"] is int, tempfile.gettempdir())
"""
    # Importing TensorFlow asks for the folder, and Python keeps the answer.
    if not importlib.util.find_spec("tensorflow"):
        pytest.skip("TensorFlow is not installed.")
    assert run_well(python("-c", code, warm="tensorflow"), {"TMPDIR": str(tmp_path)}) == f"True {tmp_path}\n"


def test_the_folder_for_temporary_files_may_be_deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert run_well(python("-c", "print(1)", warm="numpy")) == "1\n"


def test_an_error_has_pythons_traceback() -> None:
    ended = run(python("-c", "1 / 0", warm="numpy"))
    assert ended.code == 1 and ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_ranks_draw_numbers_of_their_own() -> None:
    code = "import numpy, random; print(numpy.random.rand(), random.random())"
    first, second = (run_well(python("-c", code, warm="numpy")).split() for _ in range(2))
    assert not set(first) & set(second)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_a_signal_ends_ends_its_client_so(number: int) -> None:
    ended = run(python("-c", f"import os; os.kill(os.getpid(), {number:d})", warm="numpy"))
    assert ended.code == -number


def test_signals_reach_the_rank() -> None:
    code = """
import signal, sys, time
from jobs.report import report
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
report("here")
time.sleep(100)
"""
    with Place() as place:
        job = Job(place)
        job.start(python("-c", code, warm="numpy"))
        job.await_events("here", 1)
        job.process.send_signal(signal.SIGUSR1)
        assert job.wait() == 5


def test_a_rank_ends_with_its_client() -> None:
    code = "from jobs.report import report; import time; report('here'); time.sleep(100)"
    with Place() as place:
        job = Job(place)
        job.start(python("-c", code, warm="numpy"))
        (here,) = job.await_events("here", 1)
        job.process.kill()
        _until(lambda: not _alive(here["pid"]))


def test_a_server_outlives_clients_that_go_at_any_moment() -> None:
    code = "import signal; signal.pause()"
    address = python("-c", code, warm="numpy")[4]
    request = json.dumps({"words": ["-c", code], "folder": "/", "environ": environment()}).encode()
    with open(os.devnull, "r+b") as null:
        for number in range(60):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(address)
                if number % 3:
                    socket.send_fds(client, [request], [null.fileno()] * 3)
                    with contextlib.suppress(ConnectionError):  # it has ended, and the server has said so
                        for _ in range(10 * number):
                            client.send(b"%d" % signal.SIGTERM)
    assert run_well(python("-c", "print('here')", warm="numpy")) == "here\n"


def test_servers_end_with_the_process_that_they_serve(tmp_path: Path) -> None:
    code = f"""
import os
os.environ.pop({VARIABLE!r}, None)
from jobs import python, run_well
print(run_well(python("-c", "import os; print(os.getppid())", warm="numpy")), end="")
"""
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    server = int(subprocess.run(python("-c", code), env=environ, capture_output=True, check=True).stdout)
    _until(lambda: not _alive(server) and not list(tmp_path.iterdir()))


def test_one_server_serves_all() -> None:
    code = "import os; print(os.getppid())"
    assert len({run_well(python("-c", code, warm="numpy")) for _ in range(3)}) == 1


def test_a_server_that_was_killed_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a server of its own: others are at work with theirs
    code = "import os; print(os.getppid())"
    first = int(run_well(python("-c", code, warm="numpy")))
    with Place() as place:
        job = Job(place)
        job.start(
            python("-c", "from jobs.report import report; import time; report('here'); time.sleep(100)", warm="numpy")
        )
        (here,) = job.await_events("here", 1)
        os.kill(first, signal.SIGKILL)
        _until(lambda: not _alive(first) and not _alive(here["pid"]))
    assert int(run_well(python("-c", code, warm="numpy"))) != first


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_a_server_has_set_is_asked_of_its_ranks(name: str) -> None:
    """Otherwise no rank would ever be warm, or one would have another backend."""
    environ = FRAMEWORKS[name].environ
    assert read_by_imports(environ) == environ


def _until(look: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
