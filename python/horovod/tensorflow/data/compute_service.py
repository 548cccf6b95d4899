"""The tf.data service for training scripts: read the config, send a dataset, or run a dispatcher.

::

    compute_config = TfDataServiceConfig.read("/tmp/compute.json", wait_for_file_creation=True)
    dataset = dataset.batch(128).send_to_data_service(compute_config, hvd.rank(), hvd.size())

Importing this module gives `tf.data.Dataset` the method `send_to_data_service`. The other side is `compute_worker`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any, Optional

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from horovod._core.errors import HorovodInternalError, PeerLostError
from horovod._core.life import context
from horovod.tensorflow.data import checks, servers
from horovod.tensorflow.data.attendance import Attendance, lasting
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.guard import Alarm
from horovod.tensorflow.data.registry import TRAINING
from horovod.tensorflow.data.worker import compute_worker_fn

__all__ = ["TfDataServiceConfig", "compute_worker_fn", "send_to_data_service", "tf_data_service"]

log = logging.getLogger("horovod")

_alarms: dict[Attendance, Alarm] = {}


@contextlib.contextmanager
def tf_data_service(compute_config: TfDataServiceConfig, rank: int) -> Iterator[str]:
    """Gives the address of the dispatcher that serves this rank; runs it where dispatchers are training-side.

    Collective over the training job when one training-side dispatcher serves several ranks: rank 0 runs it, and
    leaves the block after the others. (Without `hvd.init()` the number of ranks is not known, and rank 0 waits only
    for those that have entered.)

    Args:
        compute_config: read from the compute job's file.
        rank: of this process in the training job.

    Yields:
        "grpc://host:port", for `tf.data.experimental.service.distribute(service=...)`.

    Raises:
        InvalidArgumentError: there are several dispatchers, but not one per training rank.
        PeerLostError: the compute job is gone or one of its ranks died; also in place of the error of TensorFlow that
            this causes inside the block.
        CollectiveTimeoutError: dispatcher, workers or training ranks did not come, or did not leave, in time.
    """
    size = context.size() if context.is_initialized() else None
    number = checks.dispatcher_of(compute_config.dispatchers, rank, size)
    with contextlib.ExitStack() as stack:
        attendance = Attendance(compute_config, rank)
        stack.callback(attendance.close)
        own = compute_config.dispatcher_side == TRAINING and number == rank
        if own:
            stack.enter_context(_dispatcher(attendance, number))
        presence = attendance.presence
        address = presence.wait_for_dispatcher(number).address
        presence.wait_for_workers(number)
        shared = compute_config.dispatcher_side == TRAINING and compute_config.dispatchers == 1
        if shared and size is not None and size > 1:
            presence.meet("tf_data_service", size)
        try:
            yield f"grpc://{address}"
        except tf.errors.OpError as error:
            if attendance.problem is not None:
                raise PeerLostError(attendance.problem) from error
            raise
        if own and shared:
            presence.wait_for_others_to_leave()  # they may still read from this rank's dispatcher


@contextlib.contextmanager
def _dispatcher(attendance: Attendance, number: int) -> Iterator[None]:
    """Runs a dispatcher in this process. It outlives its workers, unless they have failed: TensorFlow cannot stop a
    worker whose dispatcher is gone."""
    running: list[Any] = []
    leaving = threading.Event()

    def let_workers_stop() -> None:
        with contextlib.suppress(PeerLostError):  # then they are gone
            attendance.presence.retire_dispatcher(announced)

    def replace(problem: str) -> None:
        if attendance.shut_down:
            let_workers_stop()
        if leaving.is_set():
            return
        # TensorFlow's clients wait for ever for workers that are gone, but give up when their dispatcher does not know
        # them: a new one at the same address ends all iterators, of all ranks, with an error.
        server = running.pop()
        port = int(address.rpartition(":")[2])
        servers.stop(server)
        try:
            running.append(servers.start_dispatcher(attendance.presence.local_host, port)[0])
        except tf.errors.OpError as error:
            log.error("data service: reads from dispatcher %d may hang, end the job: %s", number, error)

    server, address = servers.start_dispatcher(attendance.presence.local_host)
    running.append(server)
    try:
        announced = attendance.presence.announce_dispatcher(number, address)
        attendance.on_problem(replace)
        try:
            yield
        finally:
            leaving.set()
            if attendance.problem is None or attendance.shut_down:
                let_workers_stop()
    finally:
        attendance.close()  # so that nobody replaces it now
        for each in running:
            servers.stop(each)


def send_to_data_service(
    dataset: Any,
    compute_config: TfDataServiceConfig,
    rank: int,
    size: Optional[int] = None,
    processing_mode: Any = "distributed_epoch",
    reuse_dataset: bool = False,
    round_robin: bool = False,
) -> Any:
    """Lets a data service do everything that was asked of the dataset so far. Also a method of `tf.data.Dataset`.

    Collective over the training ranks with `reuse_dataset` and one dispatcher; else local.

    Args:
        dataset: what the data service is to compute.
        compute_config: read from the compute job's file.
        rank: of this process in the training job.
        size: of the training job; None: hvd.size() where Horovod is initialised.
        processing_mode: as in `tf.data.experimental.service.distribute`.
        reuse_dataset: all training ranks share one pass over the data, first come, first served; each element goes to
            one rank. Otherwise every rank gets all elements.
        round_robin: ranks that share take turns; needs a dataset that repeats for ever.

    Returns:
        A dataset of the same elements. Reading it raises `tf.errors.InvalidArgumentError` with the reason when the
        data service dies (eager mode).

    Raises:
        HorovodInternalError (a RuntimeError): the dispatchers run on the training side; use `tf_data_service`.
        InvalidArgumentError: there are several dispatchers, but not one per training rank; round robin without reuse.
        PeerLostError, CollectiveTimeoutError: see `tf_data_service`.
    """
    if compute_config.dispatcher_side == TRAINING:
        raise HorovodInternalError(
            "send_to_data_service needs dispatchers in the compute job, but its --dispatcher-side is training; use "
            "'with tf_data_service(compute_config, rank) as address' and tf.data.experimental.service.distribute, or "
            "start the compute job with --dispatcher-side compute."
        )
    if size is None and context.is_initialized():
        size = context.size()
    number = checks.dispatcher_of(compute_config.dispatchers, rank, size)
    checks.check_round_robin(reuse_dataset, round_robin, size)
    attendance = lasting(compute_config, rank)
    address = attendance.presence.wait_for_dispatcher(number).address
    attendance.presence.wait_for_workers(number)
    job_name = None
    if reuse_dataset:
        # A name of its own: a pass that an earlier call or training job has finished would have nothing left to give.
        sharing = size if compute_config.dispatchers == 1 else None
        meeting = attendance.presence.meet("send_to_data_service", sharing) if sharing else 0
        job_name = f"job-{meeting}"
    remote = dataset.apply(
        tf.data.experimental.service.distribute(
            processing_mode=processing_mode,
            service=f"grpc://{address}",
            job_name=job_name,
            consumer_index=rank if round_robin else None,
            num_consumers=size if round_robin else None,
        )
    )
    return _guarded(remote, attendance) if tf.executing_eagerly() else remote


def _guarded(remote: Any, attendance: Attendance) -> Any:
    if attendance not in _alarms:
        _alarms[attendance] = Alarm()
        attendance.on_problem(_alarms[attendance].ring)
    return _alarms[attendance].guard(remote)


tf.data.Dataset.send_to_data_service = send_to_data_service
