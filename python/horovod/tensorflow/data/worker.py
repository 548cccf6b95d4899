"""What every rank of the compute job does: runs a worker, and some ranks a dispatcher, until asked to end.

Re-exported by `compute_service` as `compute_worker_fn`; the command around it is `compute_worker`.
"""

from __future__ import annotations

import contextlib

from horovod._core.errors import ShutdownError
from horovod._core.life import context
from horovod.tensorflow.data import checks, servers
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.presence import Presence
from horovod.tensorflow.data.registry import COMPUTE


def compute_worker_fn(compute_config: TfDataServiceConfig) -> None:
    """Serves as one rank of the data service; returns when the compute job is asked to shut down.

    Collective over the ranks of the compute job; calls `init` where that has not been done.

    Args:
        compute_config: of the running compute service, equal on all ranks.

    Raises:
        InvalidArgumentError: the job has another number of ranks than the config says.
        PeerLostError: a rank of the data service died.
        CollectiveTimeoutError: a dispatcher did not start in time.
    """
    context.init()
    config, rank = compute_config, context.rank()
    checks.check_compute_size(context.size(), config.dispatchers, config.workers_per_dispatcher)
    presence = config.compute_client().join(COMPUTE, rank)
    reason = "it is done"
    try:
        _serve(config, presence, rank)
    except BaseException as error:
        reason = str(error) if isinstance(error, Exception) else f"it was stopped ({error or type(error).__name__})"
        raise
    finally:
        presence.close(reason)


def _serve(config: TfDataServiceConfig, presence: Presence, rank: int) -> None:
    """Runs this rank's dispatcher, if it has one, and its worker."""
    number, place = divmod(rank, config.workers_per_dispatcher)
    if config.dispatcher_side == COMPUTE and place == 0:
        server, address = servers.start_dispatcher(presence.local_host)
        dispatcher = presence.announce_dispatcher(number, address)
        _work(config, presence, number)
        presence.retire_dispatcher(dispatcher)
        servers.stop(server)
    else:
        _work(config, presence, number)


def _work(config: TfDataServiceConfig, presence: Presence, number: int) -> None:
    """Serves one dispatcher after another, those of the training job come and go with its tf_data_service blocks;
    returns when the compute job is asked to end.
    """
    first = True
    while True:
        # The first one is awaited with a limit, since one that never comes is a mistake; later ones may take their
        # time, as the clients of a compute-side dispatcher may.
        try:
            dispatcher = presence.wait_for_dispatcher(number, limited=first)
        except ShutdownError:
            return
        first = False
        worker = servers.start_worker(presence.local_host, dispatcher.address, config.timeout)
        with contextlib.suppress(ShutdownError):
            presence.announce_worker(dispatcher)
            presence.wait_for_end_of_dispatcher(dispatcher)
        # Only here, where the dispatcher still runs: without it, TensorFlow's worker does not stop before a time-out,
        # and no thread of Python runs meanwhile. After a failure the process has to end with its worker.
        servers.stop(worker)
        presence.withdraw_worker(dispatcher)
