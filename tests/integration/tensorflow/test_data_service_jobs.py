"""The tf.data service at work: whole data services in this process (threads instead of ranks), and as jobs. Jobs that
train with it are in `tests/scripts`."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed.")
pytestmark = pytest.mark.slow

from data_services import QUIET, at_once, compute_job, data_service, pid_of_rank, service_of  # noqa: E402
from jobs import Job, Place, python, run_well  # noqa: E402

from horovod._core.errors import (  # noqa: E402
    InvalidArgumentError,
    PeerLostError,
)
from horovod.tensorflow.data import servers  # noqa: E402
from horovod.tensorflow.data.compute_service import (  # noqa: E402
    TfDataServiceConfig,
    send_to_data_service,
    tf_data_service,
)

CONFIG = TfDataServiceConfig(2, 3, "compute", {"lo": [("127.0.0.1", 4711)]}, bytes(range(32)), 7)
distribute = tf.data.experimental.service.distribute


# ---- whole data services in this process


def read_all(config: TfDataServiceConfig, rank: int, size: int, count: int = 100, **options: Any) -> list[int]:
    dataset = tf.data.Dataset.range(count).send_to_data_service(config, rank, size, **options)
    return [int(value) for value in dataset.prefetch(2).as_numpy_iterator()]


def both(config: TfDataServiceConfig, size: int = 2, **options: Any) -> list[Any]:
    return at_once([functools.partial(read_all, config, rank, size, **options) for rank in range(size)])


def test_every_rank_gets_everything_without_reuse() -> None:
    with data_service(workers=2) as config:
        for values in both(config):
            assert sorted(values) == list(range(100))


def test_ranks_that_share_get_everything_once_and_again_in_the_next_call() -> None:
    with data_service(workers=2) as config:
        for _ in range(3):
            first, second = both(config, reuse_dataset=True)
            assert sorted(first + second) == list(range(100))


def test_several_dispatchers_serve_one_rank_each() -> None:
    with data_service(dispatchers=2, workers=2) as config:
        for options in ({}, {"reuse_dataset": True}):
            for values in both(config, **options):
                assert sorted(values) == list(range(100))
        errors = both(config, size=3)
        assert all(isinstance(error, InvalidArgumentError) for error in errors)
        assert "has 3 ranks, the compute job 2 dispatchers" in str(errors[0])


def test_round_robin_takes_turns() -> None:
    def read(config: TfDataServiceConfig, rank: int) -> list[int]:
        dataset = tf.data.Dataset.range(100).repeat()
        dataset = dataset.send_to_data_service(config, rank, 2, reuse_dataset=True, round_robin=True)
        return [int(value) for value in dataset.take(20).as_numpy_iterator()]

    with data_service(workers=1) as config:
        first, second = at_once([functools.partial(read, config, rank) for rank in range(2)])
        assert [value for pair in zip(first, second) for value in pair] == list(range(40))


def test_wrong_uses_are_errors() -> None:
    dataset = tf.data.Dataset.range(3)
    with pytest.raises(InvalidArgumentError, match="round_robin=True.*reuse_dataset=True as well"):
        send_to_data_service(dataset, dataclasses.replace(CONFIG, dispatchers=1), 0, 2, round_robin=True)
    with pytest.raises(InvalidArgumentError, match="their number is not known"):
        send_to_data_service(dataset, dataclasses.replace(CONFIG, dispatchers=1), 0, reuse_dataset=True)
    with pytest.raises(RuntimeError, match="--dispatcher-side is training"):
        send_to_data_service(dataset, dataclasses.replace(CONFIG, dispatcher_side="training"), 0)


def test_training_side_dispatchers_come_and_go() -> None:
    def read(config: TfDataServiceConfig, rank: int) -> list[int]:
        with tf_data_service(config, rank) as address:
            assert address.startswith("grpc://127.0.0.1:")
            dataset = tf.data.Dataset.range(100).apply(distribute("distributed_epoch", service=address))
            return [int(value) for value in dataset.as_numpy_iterator()]

    with data_service(dispatchers=2, workers=1, side="training") as config:
        for _ in range(2):
            for values in at_once([functools.partial(read, config, rank) for rank in range(2)]):
                assert sorted(values) == list(range(100))


def test_one_training_side_dispatcher_serves_all_ranks() -> None:
    def read(config: TfDataServiceConfig, rank: int) -> list[int]:
        with tf_data_service(config, rank) as address:
            dataset = tf.data.Dataset.range(100)
            dataset = dataset.apply(distribute("distributed_epoch", service=address, job_name="job"))
            values = [int(value) for value in dataset.as_numpy_iterator()]
            arrived.wait(20)  # Horovod, which knows the number of ranks, is not initialised here
            return values

    arrived = threading.Barrier(2)
    with data_service(workers=2, side="training") as config:
        first, second = at_once([functools.partial(read, config, rank) for rank in range(2)])
        assert sorted(first + second) == list(range(100))


@pytest.mark.parametrize("service_ends_first", [False, True])
def test_a_shutdown_inside_the_block_ends_both_sides(service_ends_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    def stop(server: Any, plain: Any = servers.stop) -> None:
        kind = type(server).__name__
        if kind == "WorkerServer":
            time.sleep(1)  # as on a busy machine: the dispatcher must not be gone by then
        plain(server)
        stopped.append(kind)

    monkeypatch.setattr(servers, "stop", stop)
    with data_service(workers=2, side="training") as config, tf_data_service(config, 0) as address:
        dataset = tf.data.Dataset.range(100).repeat().apply(distribute("distributed_epoch", service=address))
        assert len(list(dataset.take(20).as_numpy_iterator())) == 20
        config.compute_client().shutdown()
        if service_ends_first:
            service_of(config).close()
    assert stopped.index("DispatchServer") == 2 == stopped.count("WorkerServer"), stopped


def test_reading_on_after_the_shutdown_is_an_error() -> None:
    with data_service() as config:
        iterator = iter(tf.data.Dataset.range(10).repeat().send_to_data_service(config, 0, 1))
        next(iterator)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shut down while training rank 0 could still read"):
        for _ in range(10**6):
            next(iterator)


# ---- jobs


@pytest.fixture
def place() -> Iterator[Place]:
    """Where the jobs of a test live."""
    with Place() as made:
        yield made


def running(job: Job, configfile: Path) -> TfDataServiceConfig:
    """The config of a compute job, once the job has written it."""
    job.until(lambda: [configfile] if configfile.exists() else [], patience_s=90)
    return TfDataServiceConfig.read(str(configfile))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1], ids=["service and dispatcher", "worker"])
def test_a_killed_rank_ends_both_sides(victim: int, place: Place) -> None:
    job, configfile = compute_job(place, 2)
    config = running(job, configfile)
    dataset = tf.data.Dataset.range(100).repeat().send_to_data_service(config, 0, 1)
    iterator = iter(dataset)
    next(iterator)
    os.kill(pid_of_rank(job, victim), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(tf.errors.InvalidArgumentError, match="died|is gone|ended"):
        while time.monotonic() < start + 30:
            next(iterator)
    assert job.wait(20) == 128 + signal.SIGKILL
    assert f"rank {victim} " in job.output


@pytest.mark.slow
def test_a_killed_worker_ends_reads_from_a_training_side_dispatcher(place: Place) -> None:
    job, configfile = compute_job(place, 2, "--dispatcher-side", "training")
    config = running(job, configfile)
    with pytest.raises(PeerLostError, match="Compute rank 1 .* died"), tf_data_service(config, 0) as address:
        dataset = tf.data.Dataset.range(100).repeat().apply(distribute("distributed_epoch", service=address))
        iterator = iter(dataset)
        next(iterator)
        os.kill(pid_of_rank(job, 1), signal.SIGKILL)
        start = time.monotonic()
        while time.monotonic() < start + 30:
            next(iterator)
    assert job.wait(20) != 0


@pytest.mark.slow
def test_sigterm_ends_a_busy_compute_job_and_removes_its_file(place: Place) -> None:
    job, configfile = compute_job(place, 2)
    iterator = iter(tf.data.Dataset.range(9).repeat().send_to_data_service(running(job, configfile), 0, 1))
    next(iterator)
    job.process.send_signal(signal.SIGTERM)
    assert job.wait(20) == 128 + signal.SIGTERM, str(job)
    assert not configfile.exists()
    with pytest.raises(tf.errors.InvalidArgumentError):
        for _ in range(10**6):
            next(iterator)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "options", "message"),
    [
        (2, ["--dispatchers", "3"], "2 ranks cannot give each of 3 dispatchers the same number of workers"),
        (
            1,
            ["--dispatcher-side", "training", "--timeout", "1"],
            "Dispatcher 0 was not started by the training job within 1 s",
        ),
    ],
    ids=["wrong counts", "a training job that never comes"],
)
def test_the_command_refuses(ranks: int, options: list[str], message: str, place: Place) -> None:
    job, _ = compute_job(place, ranks, *options, warm="tensorflow")
    assert job.wait(60) == 1
    assert message in job.output


def test_the_command_explains_itself() -> None:
    said = run_well(python("-m", "horovod.tensorflow.data.compute_worker", "--help"), QUIET)
    assert all(word in said for word in ("configfile", "--dispatchers", "--dispatcher-side", "--timeout"))
