"""An elastic job on hosts of namespaces, the faults that are done to it, and what its ranks tell.

Used by `elastic_hosts`. The launcher is on the first host. Ranks write lines of JSON to files, with
the time of the kernel's monotonic clock, which all hosts share.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Callable, Final

from hosts.network import Host, Network

ROOT: Final = Path(__file__).resolve().parents[2]
FAULTS: Final = ("kill", "stop", "cut", "agent")
_CLEARING_S: Final = 10.0
_LOOK_S: Final = 0.02


class ElasticHosts:
    """See the head of the file; running when made.

    Args:
        network: of the hosts.
        slots: on each of them, in their order.
        options: further words for horovodrun.
        rank: the program of the ranks, and its arguments.
        variables: further ones of theirs.
    """

    def __init__(
        self,
        network: Network,
        slots: Sequence[int],
        options: Sequence[str],
        rank: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self.network = network
        self.folder = Path(tempfile.mkdtemp(prefix="hvdelastic"))
        self._program = rank[0]
        self._files: dict[Path, BinaryIO] = {}
        self._rest: dict[Path, bytes] = {}
        self._lines: list[dict[str, Any]] = []
        self._cut: list[Host] = []
        path = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, **variables, "BENCH_FOLDER": str(self.folder), "OMP_NUM_THREADS": "1"}
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        named = ",".join(f"{host.name}:{count}" for host, count in zip(network.hosts, slots))
        words = [sys.executable, "-m", "horovod.runner", "-np", str(sum(slots)), "-H", named, *options]
        with (self.folder / "output").open("wb") as output:
            self._job = network[1].start([*words, sys.executable, *rank], environ, stdout=output, stderr=output)

    def told(self) -> list[dict[str, Any]]:
        """What ranks have told so far, each file in its order."""
        for path in self.folder.glob("rank.*"):
            if path not in self._files:
                self._files[path] = path.open("rb")
                self._rest[path] = b""
            *lines, self._rest[path] = (self._rest[path] + self._files[path].read()).split(b"\n")
            self._lines += [{**json.loads(line), "who": path.name} for line in lines]
        return self._lines

    def until(self, look: Callable[[list[dict[str, Any]]], Any], patience_s: float, what: str) -> Any:
        """Waits until `look` finds something in what was told."""
        deadline_s = time.monotonic() + patience_s
        while not (found := look(self.told())):
            if self._job.entered.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{what} has not come:\n{self.output()}")
            time.sleep(_LOOK_S)
        return found

    def fail(self, fault: str, number: int) -> float:
        """Does something to the host of this number; when. A rank that is killed or stopped is its first."""
        host = self.network[number]
        victim = 0 if fault == "cut" else self._agent(host) if fault == "agent" else self.ranks(host)[0]
        at_s = time.monotonic()
        if fault == "cut":
            self.network.cut(host)
            self._cut.append(host)
        else:
            os.kill(victim, signal.SIGSTOP if fault == "stop" else signal.SIGKILL)
        return at_s

    def mend(self) -> None:
        """Links that were cut are whole again."""
        while self._cut:
            self.network.join(self._cut.pop())

    def ranks(self, host: Host) -> list[int]:
        """The processes of the ranks there, those that were started first first."""
        found = host.processes().items()
        return sorted(pid for pid, words in found if self._program in words and "horovod.runner" not in words)

    def output(self) -> str:
        """Of the launcher and its ranks."""
        return (self.folder / "output").read_text(errors="replace")

    def end(self, patience_s: float) -> int:
        """Waits for the end of the job; its exit code."""
        code = self._job.entered.wait(patience_s)
        self.told()
        return code

    def close(self) -> list[str]:
        """Ends what is left; what stays on any host all the same."""
        self.mend()
        self._job.kill()
        deadline_s = time.monotonic() + _CLEARING_S
        while (left := self._left()) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        for file in self._files.values():
            file.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def _left(self) -> list[str]:
        hosts = self.network.hosts
        return [f"{host.name}: {what}" for host in hosts for what in (*host.processes().values(), *host.files())]

    def _agent(self, host: Host) -> int:
        found = host.processes().items()
        return next(pid for pid, words in found if "-m horovod.runner.remote.agent" in words and "ssh" not in words)


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """Hosts, for a while."""
    made = Network(count)
    try:
        yield made
    finally:
        made.close()
