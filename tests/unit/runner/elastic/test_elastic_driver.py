"""What the driver of an elastic job tells and writes down, and when it asks its crew."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

import pytest

from horovod.runner.elastic import machine
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.driver import Around, Driver, FirstAsked
from horovod.runner.elastic.events import Found
from horovod.runner.elastic.host_source import FixedHosts
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.state import Limits
from horovod.runner.machines.hosts import Host
from horovod.runner.processes.crew import Asks, Event, Exited, Finished, GivenUp, Joined, Said, Survived


class Crew:
    """One whose events are what a test says; its descriptor is readable when it says so."""

    def __init__(self) -> None:
        self.readable, self.writer = os.pipe()
        self.due_s: Optional[float] = None
        self.coming: list[Event] = []
        self.begun: list[int] = []
        self.lone = 0

    def fileno(self) -> int:
        return self.readable

    def next_s(self) -> Optional[float]:
        return self.due_s

    def events(self) -> list[Event]:
        coming, self.coming = self.coming, []
        return coming

    def begin(self, worker: int, host: str) -> Joined:
        self.begun.append(worker)
        return Joined(worker, {})

    def tell(self, worker: int, message: Mapping[str, Any]) -> None:
        """Nobody is there."""

    def renumber(self, worker: int, rank: int) -> None:
        """Nothing is shown."""

    def address(self, host: str) -> str:
        return ""

    def signal(self, ranks: Iterable[int], number: int) -> None:
        """Nobody is there."""

    def strays(self) -> int:
        return self.lone

    def close(self) -> None:
        os.close(self.readable)
        os.close(self.writer)


class Led:
    """A job of two ranks on one host."""

    def __init__(self, log: Path, ask: bool = True) -> None:
        self.crew = Crew()
        state, _ = machine.begin(Limits(2, 1), (Host("a", 2),), Blacklist(), time.monotonic())
        source = FixedHosts((Host("a", 2),))
        source.serve()  # as the launcher has, before the job began
        self.driver = Driver(state, self.crew, Around(lambda hosts: hosts, source, Journal(str(log))))  # type: ignore[arg-type]
        self.log = log
        if ask:
            self.hear(*(Asks(worker, (-1, 0)) for worker in range(2)))

    def hear(self, *events: Event) -> list[Event]:
        self.crew.coming += events
        os.write(self.crew.writer, b"x")
        told = self.driver.events()
        os.read(self.crew.readable, 1)
        return told

    def lines(self, kind: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in found if line["event"] == kind]


@pytest.fixture
def led(tmp_path: Path) -> Iterator[Led]:
    made = Led(tmp_path / "log")
    yield made
    made.driver.close()


def test_a_newcomer_that_ends_with_0_is_reported_and_not_counted(led: Led) -> None:
    led.hear(Exited(1, 9, 0.0, "was killed by signal 9"))
    led.hear(Asks(0, (0, 1)))
    assert (led.driver.state.epoch, led.crew.begun) == (1, [2])
    told = led.hear(Exited(2, 0, 0.0, "ended with code 0"))
    assert Survived(2) in told and not any(isinstance(event, Exited) for event in told)
    said = "worker 2, which had no rank yet, ended with code 0 before it had a place; another one is started on a."
    assert Said(said) in told
    assert led.crew.begun == [2, 3] and not led.driver.state.finishing
    told = led.hear(Exited(3, 0, 0.0, "ended with code 0"))
    assert any(isinstance(event, Said) and "a gets no more ranks for 1 s." in event.text for event in told)
    *_, held = led.lines("held")
    assert (held["host"], held["for_s"], held["stay"]) == ("a", 1.0, True) and "worker 3" in held["why"]
    last = led.hear(Exited(0, 0, 0.0, "ended with code 0"))
    assert any(isinstance(event, Exited) for event in last) and led.driver.state.finishing
    assert Finished() in last


def test_workers_that_replace_the_first_ones_have_called_init_too(tmp_path: Path) -> None:
    led = Led(tmp_path / "log", ask=False)
    arrivals = FirstAsked(led.driver, led.crew)
    assert arrivals.nobody() and not arrivals.over
    led.hear(Exited(0, 9, 0.0, "was killed by signal 9"), Exited(1, 9, 0.0, "was killed by signal 9"))
    assert arrivals.over
    led.hear(Asks(2, (-1, 0)))
    assert not arrivals.nobody()
    led.driver.close()


def test_a_worker_whose_environment_was_cleared_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains alone, and is killed because it does not ask for a place; or it ends, while the other one waits."""
    led = Led(tmp_path / "log", ask=False)
    led.hear(Asks(0, (-1, 0)))
    led.crew.lone = 1
    now_s = time.monotonic() + 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    told = [event.text for event in led.hear() if isinstance(event, Said)]
    assert "1 process called hvd.init() without the variables that horovodrun gives to every rank: " in told[-1]
    monkeypatch.undo()
    led.driver.close()

    led = Led(tmp_path / "log", ask=False)
    led.hear(Asks(0, (-1, 0)))
    led.crew.lone = 1
    (ended,) = [event for event in led.hear(Exited(1, 0, 0.0, "exited with code 0")) if isinstance(event, GivenUp)]
    assert "without calling hvd.init(), which every rank must call. 1 process called hvd.init() without" in ended.why
    led.driver.close()


def test_results_are_those_of_the_last_epoch_and_of_who_was_done_before(led: Led) -> None:
    assert led.driver.results() == (0, 1)
    led.hear(Exited(0, 0, 0.0, "exited with code 0"))
    led.hear(Asks(1, (0, 1)))
    led.hear(Exited(1, 0, 0.0, "exited with code 0"))
    assert led.driver.results() == (1, 0)


def test_what_may_be_said_every_second_is_said_once(tmp_path: Path) -> None:
    led = Led(tmp_path / "log", ask=False)
    said = []
    for hosts in ((), (Host("a", 2),), (), (Host("a", 2),)):
        led.driver._step(Found(hosts))
        said += [event.text for event in led.hear() if isinstance(event, Said)]
    assert said == ["0 ranks of the 2 needed, waiting up to 600 s for more (the hosts are now none)."]
    led.driver.close()


def test_a_crew_whose_time_has_come_is_asked_though_nothing_is_to_be_read(led: Led) -> None:
    led.crew.coming = [Exited(1, 9, 0.0, "was killed by signal 9")]
    led.crew.due_s = time.monotonic() + 60
    assert led.driver.events() == []
    led.crew.due_s = time.monotonic()
    assert led.driver.events() == [Survived(1)]
