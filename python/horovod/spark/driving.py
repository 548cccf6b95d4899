"""A job on Spark, from its tasks to its results: the driver's part.

Used by `running`. The tasks call this process (`runner/remote/ways/by_tcp.py`), and the launcher over hosts, or that of
elastic jobs, does all else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Final, NamedTuple, TextIO

from horovod._net.secret import new_secret
from horovod.runner import launcher_log
from horovod.runner.answers import Answers
from horovod.runner.display import standard_streams
from horovod.runner.interruption import taken_signals
from horovod.runner.job import Effective, Job, effective_settings, make_job, working_directory
from horovod.runner.launchers.base import Launcher, Outcome, Surroundings
from horovod.runner.launchers.elastic import ElasticLauncher
from horovod.runner.launchers.elastic_streams import worker_environ
from horovod.runner.launchers.over_hosts import HostsLauncher
from horovod.runner.loop import Loop
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.this_host import rank_environ
from horovod.runner.processes.shipment import Shipment
from horovod.runner.remote.ways.by_tcp import Call, CallingAgents
from horovod.runner.remote.ways.calling_agent import LAUNCHER, credentials_of
from horovod.runner.remote.ways.transport import Transport
from horovod.spark import placement
from horovod.spark.driver_address import addresses_of_driver, is_loopback
from horovod.spark.executors import Executors, ExecutorSource
from horovod.spark.placement import Facts
from horovod.spark.session import Session
from horovod.spark.slots import Numbers
from horovod.spark.spark_job import SparkJob
from horovod.spark.task import VARIABLE
from horovod.spark.tasks import Task

START_TIMEOUT: Final = "HOROVOD_SPARK_START_TIMEOUT"
_LOOK_S: Final = 0.05  # while Spark starts the tasks
_REASON_S: Final = 5.0  # for Spark to say why a machine was lost
_END_S: Final = 30.0  # for Spark to see that all tasks have ended


class Wishes(NamedTuple):
    """What a user has asked for.

    Attributes:
        caller: what the user has called, for messages.
        payload: the call, pickled.
        patience_s: for Spark to start the tasks.
        values: of settings, by name.
        env: variables of the ranks.
        command: of the ranks.
        stdout, stderr: where their lines go.
        is_announced: their number is said.
    """

    caller: str
    payload: bytes
    patience_s: float
    values: Mapping[str, Any]
    env: Mapping[str, str]
    command: Sequence[str]
    stdout: TextIO
    stderr: TextIO
    is_announced: bool


def run_in(spark: Session, choose_numbers: Callable[[Callable[[], int]], Numbers], wishes: Wishes) -> list[Any]:
    """Runs the function in this session, with checked arguments: what it has returned, by rank.

    Args:
        spark: the session.
        choose_numbers: returns how many ranks to run. It is called with a function that asks the session for its
            default, which may take a while.
        wishes: of the user.
    """
    deadline_s = time.monotonic() + wishes.patience_s
    numbers = choose_numbers(lambda: spark.default_tasks(wishes.caller, wishes.patience_s))
    effective = _settings(wishes, {"num_proc": numbers.first})
    spark.await_slots(wishes.caller, numbers, max(0.0, deadline_s - time.monotonic()))
    if wishes.is_announced:
        many, more = numbers.first > 1, f", at most {numbers.most}" if numbers.most > numbers.first else ""
        tasks = f"{numbers.first} Spark task{'s' * many}"
        _tell(wishes, f"running {numbers.first} process{'es' * many} in {tasks}{more}.")
    with launcher_log.temporarily(effective.settings, wishes.caller):
        kind = _Elastic if numbers.elastic else _Fixed
        return kind(spark, numbers, wishes, deadline_s, float(effective.settings.link_timeout_s)).results()


class _Run:
    """One job, from its tasks to its results.

    Args:
        spark: the session.
        numbers: of ranks and tasks.
        wishes: of the user.
        deadline_s: for the tasks to call.
        link_timeout_s: see `vigil`.

    Raises:
        RuntimeError: the executors cannot reach this machine.
    """

    def __init__(
        self, spark: Session, numbers: Numbers, wishes: Wishes, deadline_s: float, link_timeout_s: float
    ) -> None:
        self._spark = spark
        self._numbers = numbers
        self._wishes = wishes
        self._deadline_s = deadline_s
        secret, name = new_secret(), secrets.token_hex(8)
        seen_at, listens_at = addresses_of_driver(wishes.caller, spark.conf, spark.executors())
        credentials = credentials_of(secret, name, LAUNCHER)
        near = seen_at if is_loopback(seen_at) else ""
        self._agents = CallingAgents(credentials, listens_at, link_timeout_s, numbers.most, at_home=True, near=near)
        where = (seen_at, self._agents.port)
        self._task = Task(secret, name, where, wishes.patience_s, link_timeout_s, again=numbers.elastic)

    def results(self) -> list[Any]:
        """Runs the job to its end; nothing of it is left when this returns or raises.

        Raises:
            RuntimeError: it has failed.
            KeyboardInterrupt: the user has stopped it.
        """
        wishes = self._wishes
        standard_streams.fill()
        with contextlib.ExitStack() as undo:
            undo.callback(self._agents.close)
            shipment = undo.enter_context(contextlib.closing(Shipment(wishes.payload)))
            signal_fd, take = undo.enter_context(taken_signals((signal.SIGINT,)))
            tasks = self._spark.start(self._numbers, self._task, f"{wishes.caller} of {self._numbers.first} ranks")
            undo.callback(tasks.cancel)
            self._await_calls(tasks, signal_fd, take)
            surroundings = Surroundings(wishes.stdout, wishes.stderr, signal_fd, take, shipment, caller=wishes.caller)
            hosts, launcher = self._placed()
            job = self._job(hosts)
            outcome = launcher.run(job, surroundings)
            launcher_log.job_ended(outcome.exits)
            outcome = _explained(outcome, tasks)
            self._agents.close()  # which the tasks wait for
            if outcome.exit_code == 0 and not self._numbers.elastic:
                tasks.ended(_END_S)
            return Answers(wishes.caller, shipment.results(), whole=True).results(job, outcome)

    def _placed(self) -> tuple[str, Launcher]:
        """The hosts, in the form of -H, and what runs the job on them."""
        raise NotImplementedError

    def _tasks(self) -> dict[str, Facts]:
        """Those that are connected."""
        return placement.said(self._agents.words())

    def _await_calls(self, tasks: SparkJob, signal_fd: int, take: Callable[[], list[int]]) -> None:
        """Waits until as many tasks have called as the job begins with."""
        while len(self._agents.words()) < self._numbers.first:
            if tasks.ended():
                raise RuntimeError(
                    f"{self._wishes.caller}: Spark has ended the job before a rank started: {tasks.why()}"
                )
            if time.monotonic() > self._deadline_s:
                raise RuntimeError(self._too_late())
            select.select([signal_fd] if signal_fd >= 0 else [], [], [], _LOOK_S)
            if take():
                raise KeyboardInterrupt

    def _too_late(self) -> str:
        return (
            f"{self._wishes.caller}: {len(self._agents.words())} of {self._numbers.first} tasks have started and "
            f"reached this machine in {self._wishes.patience_s:g} s (start_timeout, {START_TIMEOUT}). Other jobs may "
            f"hold the application's slots, or a firewall keeps the executors from {self._task.launcher[0]} port "
            f"{self._task.launcher[1]}. Free the slots, open the way, or give more time."
        )

    def _job(self, hosts: str) -> Job:
        wishes = self._wishes
        values = {**self._numbers.settings(), "hosts": hosts}
        job = make_job(_settings(wishes, values), wishes.command, wishes.env, working_directory())
        for text in job.remarks:
            _tell(wishes, f"warning: {text}")
        launcher_log.job_begins(job)
        return job


class _Fixed(_Run):
    """A job whose ranks stay."""

    def _placed(self) -> tuple[str, Launcher]:
        self._agents.expect_no_more()
        hosts = placement.hosts_of(self._tasks())
        agents = {host.name: host.callers[0] for host in hosts}
        gpus = placement.gpus_by_rank(hosts)

        def variables(slot: Slot) -> dict[str, str]:
            return {**rank_environ(slot), VARIABLE: ",".join(gpus[slot.rank])}

        way = AgentsInTasks(self._agents, agents.__getitem__)
        return placement.in_words(hosts), HostsLauncher(lambda _: way, variables)


class _Elastic(_Run):
    """A job whose ranks may change, with its executors."""

    def _placed(self) -> tuple[str, Launcher]:
        executors = Executors()
        hosts = executors.see(self._tasks())

        def variables(slot: Slot) -> dict[str, str]:
            return {**worker_environ(slot), VARIABLE: ",".join(executors.gpus_of(slot.hostname))}

        way = AgentsInTasks(self._agents, executors.agent_of)
        launcher = ElasticLauncher(lambda _: ExecutorSource(executors, self._tasks), lambda _: way, variables)
        return ",".join(host.to_string() for host in hosts), launcher


class AgentsInTasks(Transport):
    """Reaches a host through one of its tasks.

    Args:
        agents: that call.
        agent_of: the name by which that task calls; empty: there is none any more.
    """

    private = CallingAgents.private
    at_home = True

    def __init__(self, agents: CallingAgents, agent_of: Callable[[str], str]) -> None:
        self._agents = agents
        self._agent_of = agent_of

    def described(self, host: str) -> str:
        return self._agents.described(host)

    def open(self, host: str, loop: Loop) -> Call:
        return self._agents.open(self._agent_of(host), loop)


def _explained(outcome: Outcome, tasks: SparkJob) -> Outcome:
    """Where a machine was lost, Spark may know why."""
    if not outcome.complaint or outcome.interrupted or not tasks.ended(_REASON_S) or not tasks.why():
        return outcome
    return outcome._replace(complaint=f"{outcome.complaint} Spark says: {tasks.why()}")


def _settings(wishes: Wishes, values: Mapping[str, Any]) -> Effective:
    return effective_settings({**wishes.values, **values}, "argument", {**os.environ, **wishes.env})


def _tell(wishes: Wishes, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it, which is no reason to give the job up
        wishes.stderr.write(f"{wishes.caller}: {text}\n")
