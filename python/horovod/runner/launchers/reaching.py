"""How a job's hosts are reached where nothing else is said: this machine directly, the others over ssh. A `Transport`.

Used by `ssh`, `elastic` and `agents`.
"""

from __future__ import annotations

from collections.abc import Iterable

from horovod.runner.job import Job
from horovod.runner.launchers.places import is_local
from horovod.runner.remote.by_process import Ssh, ThisMachine, patience_s
from horovod.runner.remote.loop import Loop
from horovod.runner.remote.transport import Connection, Transport


class HereOrSsh(Transport):
    """See the head of the file.

    Args:
        job: whose hosts are reached.
    """

    def __init__(self, job: Job) -> None:
        self._here = ThisMachine(patience_s(job.settings), float(job.settings.link_timeout_s))
        self._elsewhere = Ssh(job.environ, job.settings)

    def why_not(self, hosts: Iterable[str]) -> str:
        return self._elsewhere.why_not(name for name in hosts if not is_local(name))

    def remarks(self) -> list[str]:
        return self._elsewhere.remarks()

    def described(self, host: str) -> str:
        return self._to(host).described(host)

    def open(self, host: str, loop: Loop) -> Connection:
        return self._to(host).open(host, loop)

    def _to(self, host: str) -> Transport:
        return self._here if is_local(host) else self._elsewhere
