"""When a job says at its end that it has trained without reducing anything, and when it must not."""

from __future__ import annotations

import json
import logging
import sys
import types
from typing import Any, Optional

import pytest

from horovod._core.errors import HorovodInternalError
from horovod._core.life import session
from horovod._core.life.ending import last_words, unreduced
from horovod._core.life.ending.unreduced import STEPS, PlainTraining
from horovod._core.settings import Settings


class Job:
    """A rank's session, whose engine says which operations have finished."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.operations: list[str] = []
        self.fails = False
        self.dumps = self

    def begin(self, rank: int = 1, size: int = 4, **settings: Any) -> None:
        self.operations = []
        engine: Any = self
        place = (rank, size, rank, size, 0, 1, True)
        begun = session.Session(*place, engine, False, False, 0, settings=Settings([("test", settings)]))
        self._monkeypatch.setattr(session, "current", begun)

    def end(self) -> None:
        ending = session.current
        assert ending is not None
        for end in session.on_end:
            end(ending)
        self._monkeypatch.setattr(session, "current", None)

    def text(self) -> str:
        if self.fails:
            raise HorovodInternalError("gone")
        named = [{"number": n, "operation": name} for n, name in enumerate(self.operations, 1)]
        return json.dumps({"finished": named[-32:]})


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(session, "on_end", [])
    monkeypatch.setattr(unreduced.atexit, "register", lambda function: function)
    made = Job(monkeypatch)
    made.begin()
    return made


def trained(steps: int = STEPS, training: Optional[PlainTraining] = None) -> PlainTraining:
    training = training or PlainTraining("PyTorch's", "Wrap it.")
    for _ in range(steps):
        if not training.wants_steps() or not training.count("SGD"):
            break
    return training


def said(training: PlainTraining, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "horovod"):
        training.remark()
    return caplog.messages


def test_training_alone_is_said(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.operations = ["broadcast"] * 50 + ["allreduce"]  # before the training
    training = trained(STEPS - 1)
    assert training.count("SGD") is False  # no more steps need be counted
    job.operations += ["barrier", "join"]
    assert said(training, caplog) == [
        f"PyTorch's SGD has made {STEPS} steps or more, and no gradient was reduced over the 4 ranks: each trains a "
        "model of its own. Wrap it. (If this is intended, HOROVOD_CHECK_PARAMETERS=0 turns this warning off.)"
    ]


def test_after_a_shutdown_it_is_said_too(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    training = trained()
    job.end()
    assert training.count("SGD") is True  # of a process that is no rank
    assert len(said(training, caplog)) == 1


def test_steps_of_several_sessions_count_together(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    training = trained(STEPS // 2)
    job.end()
    job.begin(size=2)
    trained(STEPS // 2, training)
    assert "over the 2 ranks" in said(training, caplog)[0]


@pytest.mark.parametrize("operation", ["allreduce", "reducescatter", "allgather", "alltoall", "broadcast"])
@pytest.mark.parametrize("barriers", [0, 31, 100])
def test_whatever_is_exchanged_excuses(
    job: Job, caplog: pytest.LogCaptureFixture, operation: str, barriers: int
) -> None:
    training = trained(1)
    job.operations.append(operation)
    job.operations += ["barrier"] * barriers
    assert said(trained(STEPS - 1, training), caplog) == []


def test_what_an_earlier_session_exchanged_excuses(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    training = trained()
    job.operations.append("allreduce")
    job.end()
    job.begin()
    assert said(training, caplog) == []


def test_a_record_that_does_not_go_back_far_enough_excuses(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    training = trained()
    job.operations += ["barrier"] * 32
    assert len(said(training, caplog)) == 1
    job.operations.append("barrier")
    assert said(training, caplog) == []


def test_an_engine_that_does_not_answer_excuses(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    training = trained()
    job.fails = True
    assert said(training, caplog) == []


def test_few_steps_are_not_said(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    assert said(trained(STEPS - 1), caplog) == []


def test_what_has_an_excuse_is_not_said(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    training = trained(1)
    training.excuse()
    assert training.count("SGD") is False
    assert said(trained(STEPS, training), caplog) == []


@pytest.mark.parametrize("library", ["mpi4py", "torch_xla", "torch.distributed"])
def test_another_library_is_an_excuse(
    job: Job, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    module = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, library, module)  # type: ignore[arg-type]
        training = trained(1)
    for _ in range(STEPS):
        assert training.count("SGD") is False
    assert said(training, caplog) == []


def test_a_library_that_is_imported_later_is_an_excuse(
    job: Job, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trained()
    assert len(said(training, caplog)) == 1
    monkeypatch.setitem(sys.modules, "mpi4py", types.ModuleType("mpi4py"))
    assert said(training, caplog) == []


def test_an_exception_is_not_commented_on(
    job: Job, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = trained()
    monkeypatch.setattr(last_words, "now", lambda: "ValueError: bad batch")
    assert said(training, caplog) == []


def test_whose_steps_are_counted(job: Job) -> None:
    training = PlainTraining("PyTorch's", "")
    assert training.wants_steps()
    for rank, size, settings in ((0, 1, {}), (0, 4, {}), (2, 4, {}), (1, 4, {"check_parameters": 0})):
        job.begin(rank, size, **settings)
        assert not training.wants_steps()
    job.end()
    assert not training.wants_steps()
