"""The side of the ranks: knows which faults are this rank's, and carries them out when the phase has come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Final, Optional

import numpy as np
from jobs.report import report

from horovod._core.life import membership
from horovod._net.handshake.connect import Mesh

from .draw import ROUND_STEPS, dies_on_arrival, faults_of_epoch
from .faults import OF_STEPS, Fault, Orders, strike_once

_LARGE: Final = 1 << 20  # elements, for a fault that is to happen inside a collective
_PAUSE_S: Final = 0.3
_SLOW_S: Final = 0.5


class Striking:
    """See the head of the file.

    Args:
        told: the orders of the case.
    """

    def __init__(self, told: Orders) -> None:
        self._seed = told.seed
        self._faults = [(str(number), fault) for number, fault in enumerate(told.faults)]
        self._drawn: list[tuple[str, Fault]] = []
        self._began = self._rounds = 0
        self._worker = int(os.environ[membership.WORKER_VARIABLE])
        self._own = {"RAISE": _raise, "EXIT": lambda: sys.exit(3)}
        self._install()

    def mistakes(self, mismatch: Callable[[], None]) -> None:
        """How this rank asks for what the others do not."""
        self._own["MISMATCH"] = mismatch

    def come(self) -> None:
        """Before `hvd.init()`."""
        if self._seed and dies_on_arrival(self._seed, self._worker):
            self._strike(f"worker-{self._worker}", Fault("come", self._worker, "all"))
        self.at("come", self._worker)

    def end(self) -> None:
        """Instead of `hvd.shutdown()`."""
        self.at("end", self._worker)

    def begin(self, step: int) -> None:
        """The training begins in an epoch: what was drawn for its steps counts from this one."""
        self._began, self._rounds = step, 0
        self._drawn = _counted_from(step, self._drawn)

    def step(self, step: int) -> None:
        """A step begins. An epoch that nothing has ended gets further faults."""
        rounds = (step - self._began) // ROUND_STEPS
        if self._seed and rounds > self._rounds:
            self._rounds = rounds
            self._drawn = _counted_from(step, self._draw(rounds))
        self.at("between", step)

    def at(self, phase: str, when: Optional[int]) -> None:
        """This rank has come to a phase."""
        for key, fault in self._due(phase, when):
            self._strike(key, fault)

    def reduce(self, step: int, hvd: Any) -> None:
        """Where a fault inside a collective is due, a large one, which all ranks have part in."""
        due = [fault for _, fault in (*self._faults, *self._drawn) if (fault.phase, fault.when) == ("reduce", step)]
        if not due:
            return
        own = float(hvd.rank() + 1)
        data, over = np.full(_LARGE, own), threading.Event()
        mine = self._due("reduce", step)
        for key, fault in mine:
            threading.Thread(target=self._strike_inside, args=(key, fault, data, over), daemon=True).start()
        try:
            hvd.allreduce_(data, name="large", op=hvd.Sum)
        finally:
            over.set()
        size = hvd.size()
        if size > 1 and data[-1] != size * (size + 1) / 2:
            report("wrong", step=step, large=data[-1])

    def _strike_inside(self, key: str, fault: Fault, data: np.ndarray, over: threading.Event) -> None:
        own = data[0]
        while data[0] == own and not over.is_set():
            time.sleep(0)
        self._strike(key, fault, inside=not over.is_set())

    def _install(self) -> None:
        """Puts the phases of an epoch's beginning in their places."""
        take_place, run, confirm = membership.take_place, Mesh.run, Mesh.confirm

        def asks(*words: Any) -> None:
            self.at("ask", membership.epoch())
            take_place(*words)
            self._drawn = self._draw(0)

        def meets(mesh: Mesh, *words: Any) -> None:
            self.at("meet", membership.epoch())
            run(mesh, *words)

        def starts(mesh: Mesh, *words: Any) -> None:
            self.at("start", membership.epoch())
            confirm(mesh, *words)

        membership.take_place, Mesh.run, Mesh.confirm = asks, meets, starts

    def _draw(self, rounds: int) -> list[tuple[str, Fault]]:
        epoch, seat = membership.epoch(), _seat()
        if not self._seed or epoch is None or seat is None:
            return []
        faults = faults_of_epoch(self._seed, epoch, seat[1], rounds)
        return [(f"{epoch}.{rounds}-{number}", fault) for number, fault in enumerate(faults)]

    def _due(self, phase: str, when: Optional[int]) -> list[tuple[str, Fault]]:
        rank, size = _seat() or (self._worker, 0)
        return [
            (key, fault)
            for key, fault in (*self._faults, *self._drawn)
            if (fault.phase, fault.when) == (phase, when) and fault.claims(rank, size)
        ]

    def _strike(self, key: str, fault: Fault, **more: Any) -> None:
        rank, size = _seat() or (self._worker, 0)
        if not any(strike_once(f"{key}-{word}") for word in fault.claims(rank, size)):
            return
        report("fault", **fault._asdict(), rank=rank, epoch=membership.epoch(), **more)
        if fault.what in self._own:
            self._own[fault.what]()
        elif fault.what == "SLOW":
            time.sleep(_SLOW_S)
        elif fault.what == "PAUSE":
            # A stopped process cannot wake itself.
            subprocess.Popen(["sh", "-c", f"sleep {_PAUSE_S}; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            os.kill(os.getpid(), getattr(signal, f"SIG{fault.what}"))
            time.sleep(60)  # the signal may find another thread first


def _counted_from(step: int, drawn: list[tuple[str, Fault]]) -> list[tuple[str, Fault]]:
    return [(key, f._replace(when=f.when + step) if f.phase in OF_STEPS else f) for key, f in drawn]


def _raise() -> None:
    raise ValueError("a mistake of the program")


def _seat() -> Optional[tuple[int, int]]:
    """Rank and size of the present epoch, or of the one that this process is leaving."""
    member = membership._member
    return None if member is None or member.seat is None else (member.seat.rank, member.seat.size)
