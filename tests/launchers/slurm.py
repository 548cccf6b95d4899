"""A Slurm for the tests: munged, slurmctld and a slurmd per node, with own ports, sockets and files in one folder.

It neither reads nor writes a Slurm that is configured on the machine. Needs Debian's slurm-wlm and munge, and root,
because it runs the daemons as root.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from .starters import BY_ID, SYSTEM_PATH

_START_S = 30.0
_STOP_S = 10.0
_RETRY_S = 0.05
_CPUS = 8  # pretended, so that two jobs of four ranks run at the same time

_CONFIGURATION = """\
ClusterName=launchers
SlurmctldHost={controller}
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=6
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
EpilogMsgTime=0
KillWait=2
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=0
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def why_absent() -> Optional[str]:
    """Why there can be no cluster here; None if there can."""
    missing = BY_ID["srun"].why_absent()
    if missing is None and os.geteuid() != 0:
        return "Slurm's daemons need root here."
    return missing


class Node(NamedTuple):
    """Where a slurmd runs.

    Attributes:
        name: of the host.
        address: of it.
        entry: the words in front of a command that is to run there.
    """

    name: str
    address: str
    entry: Sequence[str] = ()


def this_machine() -> Node:
    """The only node of a Slurm that needs no network."""
    return Node(socket.gethostname().split(".")[0], "127.0.0.1")


class Cluster:
    """A running Slurm; `environ` lets srun, salloc and sbatch find it.

    Args:
        nodes: the first of them has the controller too.
    """

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = list(nodes) or [this_machine()]

    def __enter__(self) -> Cluster:
        self._folder = Path(tempfile.mkdtemp(prefix="hvdslurm"))
        self._folder.chmod(0o755)  # munged refuses a folder through which clients cannot come
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.environ = {"SLURM_CONF": str(self._folder / "slurm.conf")}
        try:
            self._configure()
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for _, daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self) -> None:
        for name in ("state", "spool"):
            (self._folder / name).mkdir()
        with socket.socket() as one, socket.socket() as two:  # both open, so that the ports differ
            one.bind(("127.0.0.1", 0))
            two.bind(("127.0.0.1", 0))
            ports = one.getsockname()[1], two.getsockname()[1]
        text = _CONFIGURATION.format(
            controller=f"{self._nodes[0].name}({self._nodes[0].address})",
            folder=self._folder,
            nodes="\n".join(
                f"NodeName={node.name} NodeAddr={node.address} CPUs={_CPUS} State=UNKNOWN" for node in self._nodes
            ),
            controller_port=ports[0],
            node_port=ports[1],
        )
        Path(self.environ["SLURM_CONF"]).write_text(text)
        key = self._folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))

    def _start_all(self) -> None:
        at = self._folder
        files = [f"--key-file={at}/munge.key", f"--socket={at}/munge.socket", f"--pid-file={at}/munge.pid"]
        # Force: it would refuse to work below /tmp, which others may write to.
        here = Node("", "")
        self._start(
            here,
            "munged",
            "--foreground",
            "--force",
            *files,
            f"--log-file={at}/munge.log",
            f"--seed-file={at}/munge.seed",
        )
        self._until("munged to listen", lambda: (at / "munge.socket").is_socket())
        self._start(self._nodes[0], "slurmctld", "-D")
        for node in self._nodes:
            self._start(node, "slurmd", "-D", "-N", node.name)
        self._until(
            "idle nodes", lambda: self.ask("sinfo", "--noheader", "--format=%D %T") == f"{len(self._nodes)} idle"
        )

    def _start(self, node: Node, program: str, *words: str) -> None:
        found = shutil.which(program, path=SYSTEM_PATH)
        if found is None:
            raise FileNotFoundError(f"{program} is not installed")
        with (self._folder / f"{program}{node.name}.out").open("wb") as out:
            environ = {"PATH": SYSTEM_PATH, **self.environ}
            daemon = subprocess.Popen(
                [*node.entry, found, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ
            )
        self._daemons.append((program, daemon))

    def ask(self, program: str, *words: str) -> str:
        """What a program of Slurm prints."""
        environ = {"PATH": SYSTEM_PATH, **self.environ}
        done = subprocess.run(
            [*self._nodes[0].entry, program, *words], capture_output=True, text=True, env=environ, timeout=_START_S
        )
        return done.stdout.strip()

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            ended = [program for program, daemon in self._daemons if daemon.poll() is not None]
            if ended or time.monotonic() > deadline:
                said = "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in self._folder.glob("*.out"))
                raise RuntimeError(f"Slurm does not start: waited for {what}; ended: {ended}\n{said}")
            time.sleep(_RETRY_S)
