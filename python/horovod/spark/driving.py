"""A job on Spark, from its tasks to its results: the driver's part.

Used by `running`. The tasks call this process (`runner/remote/ways/by_tcp.py`), and the launcher over hosts does all
else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import select
import signal
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Callable, Final, NamedTuple, Optional, TextIO

from horovod._net.secret import new_secret
from horovod.runner import launcher_log
from horovod.runner.answers import Answers
from horovod.runner.display import standard_streams
from horovod.runner.interruption import taken_signals
from horovod.runner.job import Effective, Job, effective_settings, make_job, working_directory
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.ssh import SshLauncher
from horovod.runner.machines import addresses
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.this_host import rank_environ
from horovod.runner.processes.shipment import Shipment
from horovod.runner.remote.ways.by_tcp import CallingAgents
from horovod.runner.remote.ways.calling_agent import LAUNCHER, credentials_of
from horovod.spark import placement
from horovod.spark.placement import TasksOfHost
from horovod.spark.session import Session, SparkJob
from horovod.spark.task import VARIABLE
from horovod.spark.tasks import Task

CALLER: Final = "horovod.spark.run"
START_TIMEOUT: Final = "HOROVOD_SPARK_START_TIMEOUT"
_LOOK_S: Final = 0.05  # while Spark starts the tasks
_REASON_S: Final = 5.0  # for Spark to say why a machine was lost
_END_S: Final = 30.0  # for Spark to see that all tasks have ended


class Wishes(NamedTuple):
    """What a user has asked for.

    Attributes:
        payload: the call, pickled.
        patience_s: for Spark to start all tasks.
        values: of settings, by name.
        env: variables of the ranks.
        command: of the ranks.
        stdout, stderr: where their lines go.
        is_announced: their number is said.
    """

    payload: bytes
    patience_s: float
    values: Mapping[str, Any]
    env: Mapping[str, str]
    command: Sequence[str]
    stdout: TextIO
    stderr: TextIO
    is_announced: bool


def run_in(spark: Session, num_proc: Optional[int], wishes: Wishes) -> list[Any]:
    """The same in this session, with checked arguments."""
    ranks = num_proc or spark.default_tasks
    effective = _settings(wishes, {"num_proc": ranks})
    spark.await_slots(CALLER, ranks, wishes.patience_s)
    if wishes.is_announced:
        many = ranks > 1
        _tell(wishes.stderr, f"running {ranks} process{'es' * many} in {ranks} Spark task{'s' * many}.")
    with launcher_log.temporarily(effective.settings, CALLER):
        return _Run(spark, ranks, wishes, float(effective.settings.link_timeout_s)).results()


class _Run:
    """One job, from its tasks to its results.

    Args:
        spark: the session.
        ranks: number of them.
        wishes: of the user.
        link_timeout_s: see `vigil`.

    Raises:
        RuntimeError: the executors cannot reach this machine.
    """

    def __init__(self, spark: Session, ranks: int, wishes: Wishes, link_timeout_s: float) -> None:
        self._spark = spark
        self._ranks = ranks
        self._wishes = wishes
        secret, name = new_secret(), secrets.token_hex(8)
        seen_at, listens_at = addresses_of_driver(spark.conf)
        credentials = credentials_of(secret, name, LAUNCHER)
        self._agents = CallingAgents(credentials, listens_at, link_timeout_s, ranks, at_home=True)
        where = (seen_at, self._agents.port)
        self._task = Task(secret, name, where, wishes.patience_s, link_timeout_s)

    def results(self) -> list[Any]:
        """Runs the job to its end; nothing of it is left when this returns or raises.

        Raises:
            RuntimeError: it has failed.
            KeyboardInterrupt: the user has stopped it.
        """
        standard_streams.fill()
        with contextlib.ExitStack() as undo:
            undo.callback(self._agents.close)
            shipment = undo.enter_context(contextlib.closing(Shipment(self._wishes.payload)))
            signal_fd, take = undo.enter_context(taken_signals((signal.SIGINT,)))
            tasks = self._spark.start(self._ranks, self._task, f"{CALLER} of {self._ranks} ranks")
            undo.callback(tasks.cancel)
            hosts = self._hosts(tasks, signal_fd, take)
            job = self._job(hosts)
            surroundings = Surroundings(self._wishes.stdout, self._wishes.stderr, signal_fd, take, shipment)
            variables = functools.partial(_variables, placement.gpus_by_rank(hosts))
            outcome = SshLauncher(lambda _: self._agents, variables).run(job, surroundings)
            launcher_log.job_ended(outcome.exits)
            outcome = _explained(outcome, tasks)
            if outcome.exit_code == 0:
                self._agents.close()  # which the tasks wait for
                tasks.ended(_END_S)
            return Answers(CALLER, shipment.results()).results(job, outcome)

    def _hosts(self, tasks: SparkJob, signal_fd: int, take: Callable[[], list[int]]) -> list[TasksOfHost]:
        """Waits until the agents of all machines have called."""
        deadline_s = time.monotonic() + self._wishes.patience_s
        while not (hosts := placement.come(self._agents.words(), self._ranks)):
            if tasks.ended():
                raise RuntimeError(f"{CALLER}: Spark has ended the job before a rank started: {tasks.why()}")
            if time.monotonic() > deadline_s:
                raise RuntimeError(self._too_late())
            select.select([signal_fd] if signal_fd >= 0 else [], [], [], _LOOK_S)
            if take():
                raise KeyboardInterrupt
        return hosts

    def _too_late(self) -> str:
        return (
            f"{CALLER}: {len(self._agents.words())} of {self._ranks} tasks have started and reached this machine in "
            f"{self._wishes.patience_s:g} s (start_timeout, {START_TIMEOUT}). Other jobs may hold the application's "
            f"slots, or a firewall keeps the executors from {self._task.launcher[0]} port {self._task.launcher[1]}. "
            "Free the slots, open the way, or give more time."
        )

    def _job(self, hosts: Sequence[TasksOfHost]) -> Job:
        values = {"num_proc": self._ranks, "hosts": placement.in_words(hosts)}
        job = make_job(_settings(self._wishes, values), self._wishes.command, self._wishes.env, working_directory())
        for text in job.remarks:
            _tell(self._wishes.stderr, f"warning: {text}")
        launcher_log.job_begins(job)
        return job


def addresses_of_driver(conf: Mapping[str, str]) -> tuple[str, str]:
    """The address by which executors reach this machine, and the one to listen at: Spark's own.

    Raises:
        RuntimeError: there is none.
    """
    host = conf.get("spark.driver.host", "localhost").strip("[]")
    seen_at = addresses.of_name(host)
    bound = addresses.of_name(conf.get("spark.driver.bindAddress", "").strip("[]"))
    if seen_at and bound and ip_address(bound).is_unspecified:
        bound = addresses.towards(seen_at)  # at one address, also where Spark listens at all
    for address in (seen_at, bound):
        if seen_at and address and not ip_address(address).is_unspecified and addresses.is_own(address):
            return seen_at, address
    raise RuntimeError(
        f"{CALLER}: the executors are to reach the driver at {host} (spark.driver.host), which is "
        f"{seen_at or 'no known host'} and no address of this machine. Set spark.driver.host to one, or "
        "spark.driver.bindAddress where the address is translated on the way."
    )


def _explained(outcome: Outcome, tasks: SparkJob) -> Outcome:
    """Where a machine was lost, Spark may know why."""
    if not outcome.complaint or outcome.interrupted or not tasks.ended(_REASON_S) or not tasks.why():
        return outcome
    return outcome._replace(complaint=f"{outcome.complaint} Spark says: {tasks.why()}")


def _variables(gpus: Sequence[Sequence[str]], slot: Slot) -> dict[str, str]:
    return {**rank_environ(slot), VARIABLE: ",".join(gpus[slot.rank])}


def _settings(wishes: Wishes, values: Mapping[str, Any]) -> Effective:
    return effective_settings({**wishes.values, **values}, "argument", {**os.environ, **wishes.env})


def _tell(stream: TextIO, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, which is no reason to give the job up
        stream.write(f"{CALLER}: {text}\n")
