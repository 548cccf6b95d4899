"""An elastic job on hosts of namespaces, the faults that are done to it, and what its ranks tell.

Used by `elastic_hosts`. The launcher is on the first host. Ranks write lines of JSON to files, with the time of the
kernel's monotonic clock, which all hosts share.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Final

from hosts.network import Host, Network

ROOT: Final = Path(__file__).resolve().parents[2]
FAULTS: Final = ("kill", "stop", "cut", "agent")
_CLEARING_S: Final = 10.0
_LOOK_S: Final = 0.02


class ElasticHosts:
    """See the head of the file; running when made.

    Args:
        network: of the hosts.
        local_size: ranks of each.
        options: further words for horovodrun.
        program: of the ranks.
    """

    def __init__(self, network: Network, local_size: int, options: Sequence[str], program: str) -> None:
        self.network = network
        self.folder = Path(tempfile.mkdtemp(prefix="hvdelastic"))
        self._program = program
        self._cut: list[Host] = []
        path = [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
        environ = {**os.environ, "BENCH_FOLDER": str(self.folder), "OMP_NUM_THREADS": "1"}
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        named = ",".join(f"{host.name}:{local_size}" for host in network.hosts)
        size = local_size * len(network.hosts)
        words = [sys.executable, "-m", "horovod.runner", "-np", str(size), "-H", named, *options]
        with (self.folder / "output").open("wb") as output:
            self._job = network[1].start([*words, sys.executable, program], environ, stdout=output, stderr=output)

    def told(self) -> list[dict[str, Any]]:
        """What ranks have told so far, each file in its order."""
        whole = {path.name: path.read_text().rpartition("\n")[0] for path in self.folder.glob("rank.*")}
        return [{**json.loads(line), "who": name} for name, text in whole.items() for line in text.splitlines()]

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
        return self._job.entered.wait(patience_s)

    def close(self) -> list[str]:
        """Ends what is left; what stays on any host all the same."""
        self.mend()
        self._job.kill()
        deadline_s = time.monotonic() + _CLEARING_S
        while (left := self._left()) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def _left(self) -> list[str]:
        hosts = self.network.hosts
        return [f"{host.name}: {what}" for host in hosts for what in (*host.processes().values(), *host.files())]

    def _agent(self, host: Host) -> int:
        found = host.processes().items()
        return next(pid for pid, words in found if "-m horovod.runner.remote.agent" in words and "ssh" not in words)
