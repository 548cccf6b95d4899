"""What the actor of a rank does, in this process, without Ray; and the program's side as far as it needs no cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from horovod.ray import RayExecutor, ray_logger
from horovod.ray.worker import Worker

SETTINGS = RayExecutor.create_settings()


class Queue:
    """Takes what is logged."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def put(self, item: Any) -> None:
        self.items.append(item)


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ray_logger, "_has_warned", False)
    yield
    ray_logger.configure(None)


def logs(value: int, more: int = 0) -> int:
    ray_logger.log({"value": value + more})
    return value


def test_an_object_lives_between_calls() -> None:
    worker = Worker()
    worker.make(dict, (), {"a": 1})
    worker.run(lambda own: own.update(b=2), (), {}, None, True)
    assert worker.run(lambda own: own, (), {}, None, True) == {"a": 1, "b": 2}
    worker.make(None, (), {})
    assert worker.run(lambda own: own, (), {}, None, True) is None


def test_rank_0_logs_for_all() -> None:
    first, other, queue = Worker(), Worker(), Queue()
    other._rank = 1
    assert first.run(logs, (1,), {"more": 1}, queue, False) == other.run(logs, (1,), {}, queue, False) == 1
    assert queue.items == [{"value": 2}]


def test_values_that_nobody_takes_are_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="has no callbacks to call, so the values are dropped") as caught:
        logs(1)
        logs(2)
    assert len(caught) == 1


@pytest.mark.parametrize("is_alone, leaves", [(False, 1), (True, 0)])
def test_a_rank_whose_function_fails_leaves_unless_it_is_alone(
    monkeypatch: pytest.MonkeyPatch, is_alone: bool, leaves: int
) -> None:
    left: list[BaseException] = []
    monkeypatch.setattr("horovod.ray.here.leave", left.append)
    with pytest.raises(ZeroDivisionError):
        Worker().run(lambda: 1 // 0, (), {}, None, False, is_alone)
    assert len(left) == leaves


def test_a_queue_is_given_back_after_a_failure() -> None:
    queue = Queue()
    with pytest.raises(ZeroDivisionError):
        Worker().run(lambda: 1 // 0, (), {}, queue, False)
    with pytest.warns(UserWarning):
        logs(1)
    assert queue.items == []


def test_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"RayExecutor.start needs Ray, .*pip install ray"):
        RayExecutor(SETTINGS, num_workers=1).start()


def test_ray_train_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import horovod.ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"horovod.ray.HorovodConfig needs Ray, .*pip install ray"):
        horovod.ray.HorovodConfig  # noqa: B018
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.42.1"))
    with pytest.raises(NotImplementedError, match="Ray 2.42.1 is too old; 2.43 is the first"):
        horovod.ray.HorovodConfig  # noqa: B018


@pytest.mark.parametrize("version, message", [("2.3.0", "is too old"), ("2.60.0", "not connected with a Ray cluster")])
def test_ray_cannot_be_used(monkeypatch: pytest.MonkeyPatch, version: str, message: str) -> None:
    fake = SimpleNamespace(__version__=version, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", fake)
    with pytest.raises(RuntimeError, match=message):
        RayExecutor(SETTINGS, num_workers=1).start()


def test_variables_of_the_ranks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", str(1 << 20))
    monkeypatch.setenv("OF_THE_DRIVER", "1")
    monkeypatch.setenv("HOROVOD_RANK", "7")
    monkeypatch.setenv("HOROVOD_CYCLE_TIMES", "3")
    executor = RayExecutor(RayExecutor.create_settings(45, nics="eth7"), num_workers=1)
    environ = executor._plan({"OURS": "1"}).environ
    assert environ["HOROVOD_FUSION_THRESHOLD"] == str(1 << 20) and environ["OURS"] == environ["PYTHONUNBUFFERED"] == "1"
    assert environ["HOROVOD_START_TIMEOUT"] in ("45", "45.0") and environ["HOROVOD_GLOO_IFACE"] == "eth7"
    assert not {"OF_THE_DRIVER", "HOROVOD_RANK"} & environ.keys()
    assert "HOROVOD_CYCLE_TIMES is not a variable" in capsys.readouterr().err
    with pytest.raises(ValueError, match="extra_env_vars must be a dictionary"):
        executor.start(extra_env_vars="A=1")  # type: ignore[arg-type]
