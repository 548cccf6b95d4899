"""Import paths and names of `horovod.common` that programs written for upstream use, each of them exercised."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from fakes.engine import FakeJob
from fakes.ranks import session_of

import horovod
import horovod.common.basics
import horovod.common.elastic
import horovod.common.exceptions
import horovod.common.process_sets
import horovod.common.util
import horovod.numpy as hvd
from horovod._core.life import process_sets, session
from horovod.common import elastic, exceptions, util


@pytest.fixture
def one_rank() -> Iterator[None]:
    session.install(session_of(FakeJob(1), 0, True))
    process_sets.on_init(1)
    yield
    session.install(None)
    process_sets.on_shutdown()


@pytest.mark.parametrize("module", ["basics", "elastic", "exceptions", "process_sets", "util"])
def test_everything_that_is_named_is_there(module: str) -> None:
    names = getattr(horovod.common, module).__all__
    assert names and all(getattr(getattr(horovod.common, module), name) is not None for name in names)


def test_the_errors_are_ours() -> None:
    assert exceptions.HorovodInternalError is elastic.HorovodInternalError is hvd.HorovodInternalError
    assert exceptions.HostsUpdatedInterrupt is elastic.HostsUpdatedInterrupt
    assert issubclass(exceptions.PeerLostError, exceptions.HorovodInternalError)
    text = exceptions.get_version_mismatch_message("torch", "2.1", "2.13")
    assert text == str(exceptions.HorovodVersionMismatchError("torch", "2.1", "2.13")) and "2.13" in text


def test_the_basics_take_the_arguments_of_upstreams() -> None:
    basics = horovod.common.basics.HorovodBasics(__file__, "mpi_lib_v2")
    operations = [basics.Average, basics.Sum, basics.Adasum, basics.Min, basics.Max, basics.Product]
    assert operations == [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product]
    assert basics.is_initialized() is False


def test_average_and_op() -> None:
    resolve = util.get_average_backwards_compatibility_fun(horovod.common.basics.HorovodBasics())
    with pytest.warns(DeprecationWarning):
        assert [resolve(None, True), resolve(None, False)] == [hvd.Average, hvd.Sum]
    assert [resolve(None, None), resolve(hvd.Min, None)] == [hvd.Average, hvd.Min]
    with pytest.raises(ValueError, match="not both"):
        resolve(hvd.Sum, True)


def test_extensions() -> None:
    assert util.EXTENSIONS == ["tensorflow", "torch", "mxnet"]
    path = util.get_extension_full_path("/somewhere/__init__.py", "mpi_lib")
    assert path == "/somewhere/mpi_lib" + util.get_ext_suffix()
    # A package that only says that it is missing is no support.
    assert not any(util.extension_available(name) for name in ("mxnet", "ray", "nothing"))
    assert util.extension_available("numpy")


def test_answers_are_remembered() -> None:
    asked: list[int] = []
    answer = util._cache(lambda n: (asked.append(n), n + 1)[1])
    assert [answer(1), answer(1), answer(2)] == [2, 2, 3] and asked == [1, 2]


def test_small_functions() -> None:
    assert util.split_list([1, 2, 3], 2) == [[1, 2], [3]]
    assert horovod.common.process_sets.is_iterable([]) and util.is_iterable("") and not util.is_iterable(5)


def test_process_sets_by_number(one_rank: None) -> None:
    temporary = horovod.common.process_sets._temp_process_set_object(0)
    assert (temporary.process_set_id, temporary.ranks, temporary.included()) == (0, [0], True)
    with pytest.raises(ValueError, match="does not exist"):
        horovod.common.process_sets._temp_process_set_object(7)


def test_the_global_set_is_filled_in(one_rank: None) -> None:
    horovod.common.process_sets.global_process_set.ranks = None
    horovod.common.process_sets._setup(horovod.common.basics.HorovodBasics())
    assert hvd.global_process_set.ranks == [0]


def test_news_of_hosts() -> None:
    kinds = elastic.HostUpdateResult
    assert (kinds.no_update, kinds.removed, kinds.added, kinds.mixed) == (0, 1, 2, 3)
    elastic.notification_manager.init()
    manager = elastic.WorkerNotificationManager()
    state = elastic.ObjectState(lambda value: value, lambda: 0)
    manager.init()
    manager.register_listener(state)
    manager.handle_hosts_updated(1.0, kinds.added)
    with pytest.raises(elastic.HostsUpdatedInterrupt):
        state.check_host_updates()


def _in_a_new_process(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_modules_as_attributes() -> None:
    program = (
        "import sys, horovod; early = [m for m in sys.modules if m.startswith('horovod.')];"
        "print(early, horovod.runner.run.__name__, horovod.common.__name__, horovod.run is horovod.runner.run)"
    )
    assert _in_a_new_process(program) == "[] run horovod.common True"
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        horovod.nothing_of_the_kind  # noqa: B018


def test_what_is_missing_of_spark_says_so() -> None:
    part = "horovod.spark.data_loaders"
    with pytest.raises(ModuleNotFoundError, match=f"{part} is not in this version: .* Remedy: ") as caught:
        __import__(part)
    assert caught.value.name == part
    with pytest.raises(ModuleNotFoundError, match=f"{part} is not in this version: "):
        exec("from horovod.spark import data_loaders")


def test_check_build_knows_what_comes_later() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "horovod.runner", "--check-build", "--verbose"],
        capture_output=True, text=True, check=True, env=os.environ,
    ).stdout  # fmt: skip
    assert "[ ] MXNet: " in said and "[X] NumPy" in said
