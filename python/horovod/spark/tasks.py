"""What each task of a job on Spark does: it tells the driver where it is, and runs the agent of its machine if the
driver wants it to. Otherwise it holds its slot until the driver ends the call.

Ranks are children of the agent, never the Python worker of the task, which Spark uses for other jobs afterwards. When
Spark kills that worker, the agent ends its ranks and itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from horovod.runner.job import stays_behind
from horovod.runner.machines import this_host
from horovod.runner.remote.ways.by_process import python_path
from horovod.runner.remote.ways.calling_agent import AGENT, Home, credentials_of, listens, serve
from horovod.spark.placement import Facts
from horovod.spark.task import get_available_devices

# What Spark tells its own processes, secrets among it, and a rank has no business with.
_OF_SPARK: Final = (
    *("PYTHON_WORKER_", "PYTHON_DAEMON_", "PYTHON_UDF_", "PYTHON_UNIX_DOMAIN_", "PYSPARK_GATEWAY_", "_SPARK_"),
)
_END_S: Final = 5.0  # for a job that is over to close its door, after its agents have ended
_LOOK_S: Final = 0.2


class Context(Protocol):
    """What a task needs of Spark's `TaskContext`."""

    def partitionId(self) -> int: ...  # noqa: N802

    def taskAttemptId(self) -> int: ...  # noqa: N802


@dataclass(frozen=True)
class Task:
    """See the head of the file. It travels to the executors inside Spark's own messages.

    Attributes:
        secret: of the job.
        job: its name.
        launcher: address and port where the driver listens.
        patience_s: for it to answer.
        link_timeout_s: see `vigil`.
        again: a task whose ranks have ended before the job fails, so that Spark starts another one.
    """

    secret: bytes = field(repr=False)
    job: str
    launcher: tuple[str, int]
    patience_s: float
    link_timeout_s: float
    again: bool = False

    def of_partition(self, rows: Iterable[Any]) -> Iterator[None]:
        """For `mapPartitions`."""
        from pyspark import TaskContext

        del rows
        self.work(TaskContext.get())
        return iter(())

    def work(self, context: Context) -> None:
        """Returns when the ranks of all tasks have ended.

        Raises:
            ConnectError: the driver cannot be reached.
            RuntimeError: the ranks of this task have ended, and the job goes on without them.
        """
        machine, executor = where_this_is(os.environ)
        facts = Facts(context.partitionId(), machine, executor, socket.gethostname(), get_available_devices())
        name = f"{facts.partition}.{context.taskAttemptId()}"
        credentials = credentials_of(self.secret, self.job, AGENT)
        home = Home(os.getcwd(), environ_of_ranks(os.environ, sys.path), facts.text())
        last_line = serve(credentials, name, self.launcher, self.patience_s, self.link_timeout_s, home)
        deadline_s = time.monotonic() + _END_S
        while self.again and listens(credentials, self.launcher, time.monotonic() + _END_S):
            if time.monotonic() > deadline_s:
                said = f" The last line of its agent: {last_line}" if last_line else ""
                raise RuntimeError(f"The ranks of this task of Horovod have ended before the job, which goes on.{said}")
            time.sleep(_LOOK_S)


def where_this_is(environ: Mapping[str, str]) -> tuple[str, str]:
    """What `Facts` has for machine and executor: a digest each. A container has limits of its own, which its ranks
    must not share, also where it shares all namespaces with its machine, as YARN's do.

    Args:
        environ: of this process.
    """
    parts = [this_host.facts(), environ.get("CONTAINER_ID", "")]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/self/cgroup").read_text())
    machine = hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:32]
    return machine, f"{machine}/{os.getppid()}"  # the process of an executor that starts all its workers


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
