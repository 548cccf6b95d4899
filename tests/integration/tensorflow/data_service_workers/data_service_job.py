"""Data services for the tests: in this process (threads instead of ranks), or as a job of horovodrun."""

from __future__ import annotations

import contextlib
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from horovod.tensorflow.data import worker
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.service import ComputeService

ROOT = pathlib.Path(__file__).parents[4]


@contextlib.contextmanager
def service(dispatchers: int = 1, workers: int = 1, side: str = "compute", timeout: int = 20) -> Iterator[Any]:
    """A compute service alone."""
    made = ComputeService(dispatchers, workers, side, timeout, ("lo", "127.0.0.1"))
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def data_service(dispatchers: int = 1, workers: int = 1, side: str = "compute") -> Iterator[TfDataServiceConfig]:
    """A whole data service, its ranks being threads of this process; told to end by leaving."""
    with service(dispatchers, workers, side) as made:
        config = made.config
        errors: list[BaseException] = []
        threads = [
            threading.Thread(target=_rank, args=(config, rank, errors), daemon=True)
            for rank in range(dispatchers * workers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield config
        finally:
            config.compute_client().shutdown()
            for thread in threads:
                thread.join(30)
        assert not errors and not any(thread.is_alive() for thread in threads), errors


def _rank(config: TfDataServiceConfig, rank: int, errors: list[BaseException]) -> None:
    client = config.compute_client()
    presence = client.join("compute", rank)
    try:
        worker._serve(config, client, presence, rank)
    except BaseException as error:
        errors.append(error)
    finally:
        presence.close()


def at_once(functions: list[Callable[[], Any]], timeout_s: float = 60) -> list[Any]:
    """Runs the functions in threads of their own; their results, or the errors that they raised."""
    results: list[Any] = [None] * len(functions)
    done: queue.Queue[int] = queue.Queue()

    def run(index: int) -> None:
        try:
            results[index] = functions[index]()
        except Exception as error:
            results[index] = error
        done.put(index)

    for index in range(len(functions)):
        threading.Thread(target=run, args=(index,), daemon=True).start()
    deadline = time.monotonic() + timeout_s
    for _ in functions:
        done.get(timeout=max(0.1, deadline - time.monotonic()))
    return results


def environment() -> dict[str, str]:
    """The environment of a job: this source tree, one thread per rank."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}


class Job:
    """A running job of horovodrun. Its output is in `output`, once it has ended."""

    def __init__(self, ranks: int, log: pathlib.Path, *command: str) -> None:
        self._log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "horovod.runner", "-np", str(ranks), sys.executable, *command],
                env=environment(), stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self, timeout_s: float) -> int:
        """The exit code; fails the test when the job does not end in time."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job did not end within {timeout_s} s:\n{self.output[-4000:]}") from None

    def rank_pid(self, rank: int) -> int:
        """The process of a rank: the launcher's descendant that carries this rank's number."""
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"HOROVOD_RANK={rank}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    pid = parent = int(path.name)
                    while parent > 1 and parent != self.process.pid:
                        parent = int(pathlib.Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
                    if parent == self.process.pid:
                        return pid
        raise AssertionError(f"rank {rank} is not running:\n{self.output[-4000:]}")

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


def compute_job(ranks: int, folder: pathlib.Path, *options: str) -> tuple[Job, str]:
    """A compute job and the path of its config file."""
    configfile = str(folder / "compute.json")
    arguments = ["-m", "horovod.tensorflow.data.compute_worker", *options, configfile]
    return Job(ranks, folder / "compute.log", *arguments), configfile
