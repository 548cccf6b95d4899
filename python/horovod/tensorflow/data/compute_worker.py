"""Starts a data service: `horovodrun -np 4 python -m horovod.tensorflow.data.compute_worker /tmp/compute.json`.

Rank 0 runs the compute service and writes the config file, all ranks run a worker, one rank per dispatcher runs that.
The job ends when the training job tells it to (`compute_client().shutdown()`), when a rank dies, or by SIGTERM or
Ctrl-C. docs/tensorflow-data-service.md is the manual.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn, Optional

from horovod._core.errors import HorovodError
from horovod._core.life import context, session
from horovod._core.operations import objects
from horovod.tensorflow.data import addresses, checks
from horovod.tensorflow.data.config import SIDES, remove_own
from horovod.tensorflow.data.service import ComputeService
from horovod.tensorflow.data.worker import compute_worker_fn


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Runs one rank of a compute job; returns when the job is asked to shut down. Collective.

    Args:
        dispatchers: their number; the ranks must be a multiple of it.
        dispatcher_side: "compute" or "training": which job runs them.
        configfile: written by rank 0, removed at the end.
        timeout: seconds that every step of the two jobs' meeting may take.

    Raises:
        InvalidArgumentError (a ValueError): the ranks are no multiple of `dispatchers`, or an argument is wrong.
        PeerLostError: a rank of the data service died.
        CollectiveTimeoutError: a dispatcher did not start in time.
    """
    context.init()
    per_dispatcher = checks.workers_per_dispatcher(context.size(), dispatchers)
    if context.rank() != 0:
        compute_worker_fn(objects.broadcast_object(None))
        return
    # A file of an earlier job would send a training job that starts now to the wrong place.
    with contextlib.suppress(OSError):
        os.unlink(configfile)
    with _service(dispatchers, per_dispatcher, dispatcher_side, timeout) as service:
        service.config.write(configfile)
        try:
            compute_worker_fn(objects.broadcast_object(service.config))
        finally:
            remove_own(configfile, service.config)


@contextlib.contextmanager
def _service(dispatchers: int, per_dispatcher: int, side: str, timeout: int) -> Iterator[ComputeService]:
    one_host = context.local_size() == context.size()
    # The launcher knows by which address other hosts reach this one, whatever its name means to itself.
    address = "" if one_host else os.environ.get("_HOROVOD_ADDRESS", "")
    at = addresses.address_to_listen_on(
        one_host,
        address or os.environ.get("HOROVOD_HOSTNAME", ""),
        session.require().settings.gloo_iface or (),
        addresses.resolve,
        addresses.address_of_interface,
    )
    service = ComputeService(dispatchers, per_dispatcher, side, timeout, at)
    try:
        yield service
    finally:
        service.close()


def parser(
    prog: str = "python -m horovod.tensorflow.data.compute_worker",
    description: str = "Runs one rank of a tf.data service; start it with horovodrun.",
) -> argparse.ArgumentParser:
    """The parser of the command line; the words are those of its help."""
    made = argparse.ArgumentParser(prog=prog, description=description)
    made.add_argument("configfile", help="File to write for the training job, where all hosts can read it.")
    made.add_argument(
        "--dispatchers", type=int, default=1, help="Number of dispatchers: 1, or one per training rank. Default: 1."
    )
    made.add_argument(
        "--dispatcher-side", choices=SIDES, default="compute", help="Job that runs the dispatchers. Default: compute."
    )
    made.add_argument(
        "--timeout",
        type=int,
        default=60,
        help="Seconds that every step of meeting the other job may take. Default: 60.",
    )
    return made


def run(words: Optional[Sequence[str]] = None) -> int:
    """The command: parses the words, runs `main`, and gives the exit code."""
    given = parser().parse_args(words)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
    except HorovodError as error:
        sys.stderr.write(f"compute_worker: {error}\n")
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    except _StoppedError as stop:
        return 128 + stop.number
    return 0


class _StoppedError(BaseException):
    """A signal has asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def _stop(number: int, frame: object) -> NoReturn:
    """Unwinds, so that the other ranks hear of it and the config file goes."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # the way out is not to be interrupted
    raise _StoppedError(number)


def _end(code: int) -> NoReturn:
    """Ends the process. After a failure without TensorFlow's clean-up, which waits for servers that are gone."""
    if code == 0:
        sys.exit()
    context.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(run())
