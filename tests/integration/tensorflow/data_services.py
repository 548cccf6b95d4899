"""Data services for the tests: in this process (threads instead of ranks), or as a job of horovodrun."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs import Job, Place, horovodrun

from horovod._core.errors import PeerLostError
from horovod.tensorflow.data import worker
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.service import ComputeService

_services: dict[bytes, ComputeService] = {}


@contextlib.contextmanager
def service(dispatchers: int = 1, workers: int = 1, side: str = "compute", timeout: int = 20) -> Iterator[Any]:
    """A compute service alone."""
    made = ComputeService(dispatchers, workers, side, timeout, ("lo", "127.0.0.1"))
    _services[made.config.key] = made
    try:
        yield made
    finally:
        made.close()
        del _services[made.config.key]


def service_of(config: TfDataServiceConfig) -> ComputeService:
    """The compute service that made a config."""
    return _services[config.key]


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
            with contextlib.suppress(PeerLostError):  # the test has closed the service
                config.compute_client().shutdown()
            for thread in threads:
                thread.join(30)
        assert not errors and not any(thread.is_alive() for thread in threads), errors


def _rank(config: TfDataServiceConfig, rank: int, errors: list[BaseException]) -> None:
    presence = config.compute_client().join("compute", rank)
    try:
        worker._serve(config, presence, rank)
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


QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}


def compute_job(place: Place, ranks: int, *options: str, warm: str = "") -> tuple[Job, Path]:
    """A running compute job and the path of its config file."""
    configfile = place.folder / "compute.json"
    job = Job(place, QUIET, "compute")
    job.start(horovodrun(ranks, "-m", "horovod.tensorflow.data.compute_worker", *options, configfile, warm=warm))
    return job, configfile


def pid_of_rank(job: Job, rank: int) -> int:
    """The process of a rank: the first of the job that carries this rank's number."""
    numbered = f"HOROVOD_RANK={rank}".encode()
    return min(pid for pid in job.processes() if numbered in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
