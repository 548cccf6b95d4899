"""What each task of a job on Spark does: finds out which tasks share its machine, calls the driver, and runs the agent
of that machine if it is the first of them. The others hold their slots until the driver ends the call.

Ranks are children of the agent, never the Python worker of the task, which Spark uses for other jobs afterwards. When
Spark kills that worker, the agent ends its ranks and itself.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from horovod.runner.job import stays_behind
from horovod.runner.machines import this_host
from horovod.runner.remote.ways.by_process import python_path
from horovod.runner.remote.ways.calling_agent import AGENT, Home, credentials_of, serve
from horovod.spark.placement import Facts, hosts_of
from horovod.spark.task import get_available_devices

# What Spark tells its own processes, secrets among it, and a rank has no business with.
_OF_SPARK: Final = (
    *("PYTHON_WORKER_", "PYTHON_DAEMON_", "PYTHON_UDF_", "PYTHON_UNIX_DOMAIN_", "PYSPARK_GATEWAY_", "_SPARK_"),
)


class Stage(Protocol):
    """What a task needs of Spark's `BarrierTaskContext`."""

    def partitionId(self) -> int: ...  # noqa: N802

    def allGather(self, message: str) -> list[str]: ...  # noqa: N802


@dataclass(frozen=True)
class Task:
    """See the head of the file. It travels to the executors inside Spark's own messages.

    Attributes:
        secret: of the job.
        job: its name.
        launcher: address and port where the driver listens.
        patience_s: for it to answer.
        link_timeout_s: see `vigil`.
    """

    secret: bytes = field(repr=False)
    job: str
    launcher: tuple[str, int]
    patience_s: float
    link_timeout_s: float

    def of_partition(self, rows: Iterable[Any]) -> Iterator[None]:
        """For `RDDBarrier.mapPartitions`."""
        from pyspark import BarrierTaskContext

        del rows
        self.work(BarrierTaskContext.get())
        return iter(())

    def work(self, stage: Stage) -> None:
        """Returns when the ranks of all tasks have ended.

        Raises:
            ConnectError: the driver cannot be reached.
        """
        facts = Facts(stage.partitionId(), this_host.facts(), socket.gethostname(), get_available_devices())
        hosts = hosts_of(Facts.of(text) for text in stage.allGather(facts.text()))
        host = next(host for host in hosts if facts.partition in host.partitions)
        name, words = host.call_of(facts.partition)
        credentials = credentials_of(self.secret, self.job, AGENT)
        home = Home(os.getcwd(), environ_of_ranks(os.environ, sys.path), words)
        serve(credentials, name, self.launcher, self.patience_s, self.link_timeout_s, home)


def is_sparks(name: str) -> bool:
    """The variable is one that Spark gives its own processes."""
    return name.startswith(_OF_SPARK)


def environ_of_ranks(environ: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """The variables of an agent and of its ranks, without those that are nobody else's business.

    Args:
        environ: of this process.
        path: where it finds modules, those of --py-files too.
    """
    kept = {name: value for name, value in environ.items() if not (stays_behind(name) or is_sparks(name))}
    return {**kept, "PYTHONPATH": os.pathsep.join(python_path(_added(path)))}


def _added(path: Sequence[str]) -> list[str]:
    """What is not the interpreter's own."""
    own = {os.path.realpath(each) for each in sysconfig.get_paths().values()}
    library = sysconfig.get_path("stdlib")
    zipped = os.path.join(os.path.dirname(library), f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    return [
        os.path.abspath(place)
        for place in path
        if place and os.path.realpath(place) not in own and not place.startswith(library + os.sep) and place != zipped
    ]
