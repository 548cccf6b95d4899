"""What `horovod.spark` decides: hosts and ranks, slots, addresses, what went wrong in Java, variables of the ranks."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod._net.failures import ProtocolError
from horovod.runner.machines import addresses
from horovod.runner.machines.host_variables import added
from horovod.spark.driver_address import addresses_of_driver
from horovod.spark.placement import Facts, gpus_by_rank, hosts_of, in_words, said
from horovod.spark.slots import SlotWatch, declared, refuse_dynamic_allocation
from horovod.spark.spark_job import ThreadedJob, reason_in
from horovod.spark.tasks import environ_of_ranks, where_this_is


def test_the_host_of_task_0_comes_first_and_the_ranks_of_a_host_are_consecutive() -> None:
    facts = [
        Facts(2, "m1", "e1", "a", ["5"]),
        Facts(0, "m2", "e2", "b", ["6"]),
        Facts(3, "m2", "e3", "b"),
        Facts(1, "m1", "e1", "a"),
    ]
    hosts = hosts_of(said({f"{each.partition}.7": each.text() for each in facts}))
    assert [(host.name, host.callers) for host in hosts] == [("b", ["0.7", "3.7"]), ("a", ["1.7", "2.7"])]
    assert in_words(hosts) == "b:2,a:2" and [list(each) for each in gpus_by_rank(hosts)] == [["6"], [], [], ["5"]]


def test_machines_that_share_a_name_are_two_hosts() -> None:
    names = ["node", "node", "node", "-?"]
    facts = {str(number): Facts(number, f"m{number}", "e", name) for number, name in enumerate(names)}
    assert [host.name for host in hosts_of(facts)] == ["node", "node-2", "node-3", "host"]


NONSENSE = ["", "[]", "[[1]]", '[0,"m","e","h"]', '[0,"m","e","h",[1]]', '[0,"m","e",[],[]]', '["0","m","e","h",[]]']
NONSENSE += ['[-1,"m","e","h",[]]', '[1e999,"m","e","h",[]]', '[0,"m","e","h","x","y",[]]', "{}", "[" * 4000]


@pytest.mark.parametrize("words", NONSENSE)
def test_a_task_that_says_nonsense(words: str) -> None:
    with pytest.raises(ProtocolError, match="Task 3.7 of Spark says nothing of itself that can be understood"):
        Facts.said("3.7", words)


def test_a_container_is_a_machine_of_its_own_and_an_executor_is_known_by_its_process() -> None:
    plain, container = where_this_is({}), where_this_is({"CONTAINER_ID": "container_1_01"})
    assert plain[0] != container[0] and plain == where_this_is({"OTHER": "1"})
    assert plain[1] == f"{plain[0]}/{os.getppid()}"


@pytest.mark.parametrize(
    "master, conf, slots",
    [
        ("local-cluster[2,3,1024]", {}, 6),
        ("local-cluster[2, 3, 1024]", {"spark.task.cpus": "2"}, 2),
        ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "3", "spark.task.cpus": "2"}, 4),
        ("k8s://https://a", {"spark.executor.instances": "4"}, 4),
        ("yarn", {}, None),
        ("spark://a:7077", {"spark.cores.max": "8"}, 8),
        ("spark://a:7077", {"spark.executor.instances": "1"}, None),
        ("local[4]", {}, None),
    ],
)
def test_how_many_slots_an_application_can_have(master: str, conf: dict[str, str], slots: int) -> None:
    assert declared(master, conf) == slots


def watch(wanted: int, master: str, **conf: str) -> SlotWatch:
    settings = {name.replace("_", "."): value for name, value in conf.items()}
    return SlotWatch("run", wanted, master, settings, 100.0, 60.0)


def test_too_few_slots_are_reported_at_once_where_there_cannot_be_more() -> None:
    assert watch(2, "local[2]").enough(2, 100.0)
    with pytest.raises(InvalidArgumentError, match=r"3 processes need 3 task slots .* has 2 \(.* Lower num_proc to 2"):
        watch(3, "local[2]").enough(2, 100.0)
    with pytest.raises(InvalidArgumentError, match="application has 0 and can have 2 .* Lower num_proc to 2"):
        watch(3, "local-cluster[2,1,1024]").enough(0, 100.0)


def test_executors_that_come_are_waited_for() -> None:
    known = watch(4, "spark://a:7077", spark_cores_max="4")
    assert [known.enough(slots, now_s) for slots, now_s in ((0, 100.0), (2, 150.0), (4, 159.0))] == [False, False, True]
    with pytest.raises(InvalidArgumentError, match="has 2 after 60 s and can have 4"):
        known.enough(2, 160.0)
    unknown = watch(4, "spark://a:7077")
    assert [unknown.enough(slots, now_s) for slots, now_s in ((0, 120.0), (2, 121.0), (2, 135.0))] == [False] * 3
    with pytest.raises(InvalidArgumentError, match=r"has 2 after 36 s \("):
        unknown.enough(2, 136.0)


def test_dynamic_allocation_is_refused_with_the_settings_to_change() -> None:
    on = {"spark.dynamicAllocation.enabled": "true"}
    refuse_dynamic_allocation("run", "local[2]", on)
    refuse_dynamic_allocation("run", "yarn", {})
    with pytest.raises(InvalidArgumentError, match="Allocation.enabled=false and spark.executor.instances"):
        refuse_dynamic_allocation("run", "yarn", on)


def test_a_given_import_path_comes_before_the_executors() -> None:
    own = {"PYTHONPATH": "/spark", "A": "own", "B": "own"}
    assert added(own, {"A": "given"}) == {"PYTHONPATH": "/spark", "A": "given", "B": "own"}
    assert added(own, {"PYTHONPATH": "/mine"})["PYTHONPATH"] == "/mine:/spark"
    assert added({}, {"A": "given"}) == {"A": "given"}


def addresses_for(conf: dict[str, str], *executors: str) -> tuple[str, str]:
    return addresses_of_driver("horovod.spark.run", conf, executors)


def test_the_driver_listens_where_the_executors_reach_it() -> None:
    assert addresses_for({"spark.driver.host": "127.0.0.1"}) == ("127.0.0.1", "127.0.0.1")
    assert addresses_for({"spark.driver.host": "[::1]"})[0] == "::1"
    translated = {"spark.driver.host": "192.0.2.7", "spark.driver.bindAddress": "127.0.0.1"}
    assert addresses_for(translated) == ("192.0.2.7", "127.0.0.1")
    everywhere = {"spark.driver.host": "192.0.2.7", "spark.driver.bindAddress": "0.0.0.0"}
    assert addresses_for(everywhere)[1] == addresses.towards("192.0.2.7")
    assert addresses_for({**everywhere, "spark.driver.host": "127.0.0.1"})[1] == "127.0.0.1"
    with pytest.raises(RuntimeError, match=r"no address of this machine"):
        addresses_for({"spark.driver.host": "0.0.0.0"})
    with pytest.raises(RuntimeError, match=r"at 192.0.2.7 \(spark.driver.host\), .* Set spark.driver.host to one"):
        addresses_for({"spark.driver.host": "192.0.2.7"})


def test_a_driver_that_only_its_own_machine_reaches_is_reported_at_once() -> None:
    here = {"spark.driver.host": "localhost"}
    assert addresses_for(here, "localhost", "127.0.0.1")[0] in ("127.0.0.1", "::1")
    with pytest.raises(RuntimeError, match=r"on 192.0.2.7, 192.0.2.8 are to .* Set spark.driver.host to an address"):
        addresses_for(here, "192.0.2.8", "192.0.2.7", "localhost")


IN_PYTHON = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier stage.
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 3, in main
    process()
{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
Driver stacktrace:
"""


def test_what_went_wrong_in_java_is_a_line() -> None:
    lost = "horovod._net.failures.ConnectError: The launcher cannot be reached at 10.0.0.1 port 5: refused."
    assert reason_in(IN_PYTHON.format(error=lost)) == lost
    missing = reason_in(IN_PYTHON.format(error="ModuleNotFoundError: No module named 'horovod'"))
    assert missing.startswith("horovod cannot be imported on the executors. Install this package")
    java = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n: "
        "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 2 cancelled \n\tat org.apache.spark.X.y(Z.scala:1)"
    )
    assert reason_in(java) == "[SPARK_JOB_CANCELLED] Job 2 cancelled"
    lost = "ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137"
    assert reason_in(f": org.apache.spark.SparkException: stage failed.\n{lost}\nDriver stacktrace:") == lost
    assert reason_in("") == ""


def test_what_ranks_have_of_their_executor() -> None:
    environ = {"PATH": "/bin", "PYTHON_WORKER_FACTORY_SECRET": "x", "_SPARK_AUTH_SECRET": "x", "HOROVOD_RANK": "5"}
    path = ["", *sys.path, "/data/files.zip"]
    found = environ_of_ranks({**environ, "HOROVOD_FUSION_THRESHOLD": "1"}, path)
    assert set(found) == {"PATH", "HOROVOD_FUSION_THRESHOLD", "PYTHONPATH"}
    places = found["PYTHONPATH"].split(os.pathsep)
    assert "/data/files.zip" in places and os.path.dirname(os.__file__) not in places and "" not in places


def test_a_server_that_does_not_answer_does_not_keep_who_cancels() -> None:
    class Job(ThreadedJob):
        is_asked, may_answer = threading.Event(), threading.Event()

        def _work(self) -> None:
            assert self.is_asked.wait(10)
            raise ConnectionError("the server is gone")

        def _interrupt(self) -> None:
            self.is_asked.set()
            self.may_answer.wait(10)

    job = Job()
    start_s = time.monotonic()
    job.cancel()
    assert job.ended() and job.why() == "" and time.monotonic() - start_s < 5
    job.may_answer.set()
