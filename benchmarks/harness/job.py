"""A running job of one contender: its processes, and the sockets through which the driver gives its ranks orders.

Used by `contest` and the row files. It starts only what it later stops, and knows nothing of what is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

from contenders.peers import Contender

_START_S, _ORDER_S, _END_S = 60.0, 180.0, 15.0


class JobError(Exception):
    """The job did not start, lost a rank, or did not answer in time; the text says which."""


class Job:
    """Ranks of one contender, each waiting for orders.

    Args:
        contender: that is not missing.
        ranks: how many.
        pin: give each rank's main thread a core of its own.

    Attributes:
        versions: what the library says of itself.
        pids: of the ranks, by rank.
        launcher_pids: of the processes the driver started itself.

    Raises:
        JobError: it does not come up within a minute.
    """

    def __init__(self, contender: Contender, ranks: int, pin: bool) -> None:
        self.contender, self.ranks = contender, ranks
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        self._log = open(Path(self._folder.name, "log"), "w+")  # noqa: SIM115 - closed by `close`
        self._processes: list[subprocess.Popen[bytes]] = []
        self._streams: dict[int, Any] = {}
        self._wires: dict[int, socket.socket] = {}
        self.pids: dict[int, int] = {}
        self.versions = ""
        address = str(Path(self._folder.name, "orders"))
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(address)
                door.listen(ranks)
                self._start(address, "pin" if pin else "free")
                self._welcome(door)
        except BaseException:
            self.close()
            raise

    @property
    def launcher_pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def order(self, **what: Any) -> list[dict[str, Any]]:
        """Has all ranks carry out an order; the answers by rank.

        Raises:
            JobError: a rank ended or did not answer.
        """
        text = json.dumps(what) + "\n"
        try:
            for stream in self._streams.values():
                stream.write(text)
                stream.flush()
        except OSError as error:
            raise JobError(self._story(f"a rank is gone: {error}")) from error
        deadline = time.monotonic() + _ORDER_S
        return [self._answer(rank, deadline) for rank in range(self.ranks)]

    def close(self) -> None:
        """Hangs up, waits for the ranks to leave, and stops those that do not."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.close()
        for wire in self._wires.values():
            wire.close()
        self._streams.clear()
        self._wires.clear()
        deadline = time.monotonic() + (_END_S if self.pids else 0)
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._end(process)
        self._processes.clear()
        self._log.close()
        self._folder.cleanup()

    # ---- private

    def _start(self, address: str, pinning: str) -> None:
        arguments = [address, str(Path(self._folder.name, "gate")), pinning]
        single = not self.contender.launcher
        for rank in range(self.ranks if single else 1):
            environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
            # One thread to compute with, for everybody.
            environment.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            environment.update(self.contender.environment)
            if single:
                store = str(Path(self._folder.name, "store"))
                environment.update(BENCH_RANK=str(rank), BENCH_SIZE=str(self.ranks), BENCH_STORE=store)
            self._processes.append(
                subprocess.Popen(
                    self.contender.command(self.ranks, arguments, rank),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    start_new_session=True,
                )
            )

    def _welcome(self, door: socket.socket) -> None:
        deadline = time.monotonic() + _START_S
        door.settimeout(0.2)
        while len(self._streams) < self.ranks:
            try:
                wire, _ = door.accept()
            except TimeoutError:
                ended = [process.returncode for process in self._processes if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    fact = f"exited with code {ended[0]}" if ended else f"not up after {_START_S:.0f} s"
                    raise JobError(self._story(fact)) from None
                continue
            wire.settimeout(None)
            stream = wire.makefile("rw")
            greeting = json.loads(stream.readline() or "{}")
            if greeting.get("size") != self.ranks:
                raise JobError(self._story(f"a rank reports {greeting.get('size')} ranks instead of {self.ranks}"))
            self._streams[greeting["rank"]], self._wires[greeting["rank"]] = stream, wire
            self.pids[greeting["rank"]] = greeting["pid"]
            self.versions = greeting["versions"]

    def _answer(self, rank: int, deadline: float) -> dict[str, Any]:
        stream = self._streams[rank]
        # One line is asked for and one comes: nothing can lie in the stream's own buffer.
        if not select.select([self._wires[rank]], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise JobError(self._story(f"rank {rank} did not answer within {_ORDER_S:.0f} s"))
        line = stream.readline()
        if not line:
            raise JobError(self._story(f"rank {rank} ended"))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _story(self, fact: str) -> str:
        self._log.flush()
        last = Path(self._log.name).read_text(errors="replace").strip().splitlines()[-3:]
        return f"{fact}. It wrote: {' / '.join(last)}" if last else fact

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Stops the session of processes that this job has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
                return


def try_start(contender: Contender, ranks: int, pin: bool) -> tuple[Optional[Job], str]:
    """A running job, or the reason why there is none."""
    if contender.missing:
        return None, contender.missing
    try:
        return Job(contender, ranks, pin), ""
    except JobError as error:
        return None, str(error)
