"""Starts a data service in the executors of a Spark application, by spark-submit with this file:

    worker_py=$(python -c "import horovod.spark.tensorflow.compute_worker as worker; print(worker.__file__)")
    spark-submit --master "local[4]" "$worker_py" /tmp/compute.json

A rank, with a worker of the service, for each of the application's `spark.default.parallelism` slots. It ends as
`horovod.tensorflow.data.compute_worker` does, whose ranks these are: when the training job tells it to, when a rank
dies, or by SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

from horovod._core.errors import HorovodError

_CALLER = "horovod.spark.tensorflow.compute_worker"


def main(dispatchers: int, dispatcher_side: str, configfile: str, timeout: int) -> None:
    """Runs the compute job in the active session, and returns when it is asked to shut down.

    Args:
        dispatchers: their number; the ranks must be a multiple of it.
        dispatcher_side: "compute" or "training": which job runs them.
        configfile: written by rank 0, removed at the end: a path that the executors and the training job share, and
            this process if the file is to go when the executors are killed.
        timeout: seconds that every step of the two jobs' meeting may take.

    Raises:
        InvalidArgumentError: (also ValueError) the ranks are no multiple of `dispatchers`.
        RuntimeError: there is no session, or the job has failed.
    """
    from horovod.spark.running import default_ranks, run
    from horovod.tensorflow.data import checks, compute_worker
    from horovod.tensorflow.data.config import key_in, remove_ended

    ranks = default_ranks(_CALLER)
    checks.workers_per_dispatcher(ranks, dispatchers)
    earlier = key_in(configfile)
    try:
        run(compute_worker.main, (dispatchers, dispatcher_side, configfile, timeout), num_proc=ranks)
    except BaseException:
        remove_ended(configfile, earlier)  # a rank that ends with its executor is killed, and could not
        raise


def run_command(words: Optional[Sequence[str]] = None) -> int:
    """The command: parses the words, runs `main` in a session, and gives the exit code."""
    from horovod._core.frameworks import require
    from horovod.tensorflow.data.compute_worker import parser

    given = parser("spark-submit compute_worker.py", "Runs a tf.data service in the executors.").parse_args(words)
    require("pyspark", "Spark for Python", _CALLER)
    from pyspark.sql import SparkSession

    signal.signal(signal.SIGTERM, _stop)
    session = SparkSession.builder.appName("Horovod's data service").getOrCreate()
    try:
        main(given.dispatchers, given.dispatcher_side, given.configfile, given.timeout)
    except (HorovodError, RuntimeError) as error:
        sys.stderr.write(f"compute_worker: {error}\n")
        return 1
    except (KeyboardInterrupt, _StoppedError) as stop:
        return 128 + (signal.SIGTERM if isinstance(stop, _StoppedError) else signal.SIGINT)
    finally:
        session.stop()
    return 0


class _StoppedError(BaseException):
    """SIGTERM has asked this process to end."""


def _stop(number: int, frame: object) -> NoReturn:
    """Unwinds, so that the ranks end and the config file goes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the way out is not to be interrupted
    raise _StoppedError


if __name__ == "__main__":
    sys.exit(run_command())
