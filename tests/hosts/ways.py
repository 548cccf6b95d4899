"""Every way to start a job on several hosts: launchers, and the MPIs that they belong to. Facts, and one call each.

Used by the tests over torchrun and Slurm, and by `launcher_table`, which runs all of them.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Optional

from launchers import slurm

from .conftest import ROOT, Ended, Hosts
from .mpi.mpis import BY_ID as MPIS
from .network import Running

Words = list[str]
_WITHIN_S = 60.0
# The same program, in the processes that `horovod.run` starts.
RUN = """
import runpy, sys
import horovod
def work(program, *words):
    sys.argv = [program, *words]
    runpy.run_path(program, run_name="__main__")
horovod.run(work, {words!r}, num_proc={size}, hosts={hosts!r}, **{options!r})
"""


@dataclass
class Order:
    """A job that is to be started.

    Attributes:
        counts: ranks on each of `names`.
        rank: the command of a rank.
        names: of the hosts.
        environ: of the ranks and their launcher, added.
        folder: that all hosts see.
        secret: the file with the user's secret, where there is one.
        options: further words for the launcher.
        within_s: the launcher must have ended.
        streams: where its output goes; empty: it is kept.
    """

    counts: Sequence[int]
    rank: Words
    names: Sequence[str] = ("host1", "host2", "host3")
    environ: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path("/tmp")
    secret: Optional[Path] = None
    options: Words = field(default_factory=list)
    within_s: float = _WITHIN_S
    streams: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(self.counts)

    def slots(self) -> str:
        """`host1:2,host2:1`."""
        return ",".join(f"{name}:{count}" for name, count in zip(self.names, self.counts))

    def variables(self) -> dict[str, str]:
        """Of the ranks."""
        own = {"HOROVOD_SECRET_FILE": str(self.secret)} if self.secret else {}
        return {"PYTHONPATH": str(ROOT / "python"), **own, **self.environ}


@dataclass(frozen=True)
class Way:
    """One way.

    Attributes:
        name: launcher and implementation, in the table.
        launcher: what `detect_placement` calls it.
        start: the processes that make the job, each on its host.
        shown: the command of a table, with three dots for the rank's.
        why_absent: why it cannot be used here; None if it can.
        needs_secret: the user gives the ranks a secret.
        needs_cluster: a Slurm runs on the hosts.
    """

    name: str
    launcher: str
    start: Callable[[Hosts, Order], list[Running]]
    shown: str
    why_absent: Callable[[], Optional[str]] = lambda: None
    needs_secret: bool = False
    needs_cluster: bool = False

    def run(self, hosts: Hosts, order: Order) -> Ended:
        """Starts it and waits for its end: of the first that failed, with the output of all."""
        began_s = time.monotonic()
        ended = [hosts.ended(running, began_s, order.within_s) for running in self.start(hosts, order)]
        code = next((each.code for each in ended if each.code), 0)
        lines = [[line for each in ended for line in getattr(each, stream)] for stream in ("out", "err")]
        return Ended(code, *lines, max(each.seconds for each in ended))


def write_secret(folder: Path, name: str = "secret") -> Path:
    """A file with a secret, as a user makes it."""
    path = folder / name
    path.touch(0o600)
    path.write_text(secrets.token_hex(32))
    return path


def nodes(hosts: Hosts) -> list[slurm.Node]:
    """The hosts as the nodes of a Slurm."""
    return [slurm.Node(host.name, host.address, host.entry()) for host in hosts.network.hosts]


def _ssh(hosts: Hosts, order: Order) -> list[Running]:
    options = " ".join(["-np", str(order.size), "-H", order.slots(), *order.options])
    return [hosts.start(options, order.rank, environ=order.environ, **order.streams)]


def _function(hosts: Hosts, order: Order) -> list[Running]:
    options = dict(zip((word.lstrip("-").replace("-", "_") for word in order.options[::2]), order.options[1::2]))
    code = RUN.format(words=tuple(order.rank[1:]), size=order.size, hosts=order.slots(), options=options)
    return [hosts.start_program([order.rank[0], "-c", code], environ=order.environ, **order.streams)]


def _mpi(name: str) -> Callable[[Hosts, Order], list[Running]]:
    def start(hosts: Hosts, order: Order) -> list[Running]:
        words = MPIS[name].command(order.counts, order.rank, order.variables(), order.names)
        return [hosts.start_program(words, environ=order.environ, **order.streams)]

    return start


def _srun(pmi: str) -> Callable[[Hosts, Order], list[Running]]:
    def start(hosts: Hosts, order: Order) -> list[Running]:
        # The list of hosts is a file in which each stands once per rank: then Slurm places the ranks just so.
        listed = order.folder / "slurm.hosts"
        listed.write_text("".join(f"{name}\n" * count for name, count in zip(order.names, order.counts)))
        environ = {**order.variables(), "SLURM_HOSTFILE": str(listed)}
        # Else srun waits for the other tasks when one has failed.
        words = ["srun", f"--mpi={pmi}", "--kill-on-bad-exit=1", "--distribution=arbitrary", "-n", str(order.size)]
        words += [*order.options, *order.rank]
        return [hosts.start_program(words, environ=environ, **order.streams)]

    return start


def _torchrun(hosts: Hosts, order: Order) -> list[Running]:
    started = []
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    for node, count in enumerate(order.counts):
        words = [f"--nnodes={len(order.counts)}", f"--node-rank={node}", f"--nproc-per-node={count}"]
        words += [f"--master-addr={order.names[0]}", "--master-port=29511", "--no-python", *order.options, *order.rank]
        environ = {"OMP_NUM_THREADS": "1", **order.variables()}
        started.append(hosts.start_program([*torchrun, *words], environ=environ, on=node + 1, **order.streams))
    return started


def _no_slurm() -> Optional[str]:
    return slurm.why_absent()


SSH = Way("horovodrun (ssh)", "horovodrun", _ssh, "horovodrun -np 4 -H host1:2,host2:2 ...")
FUNCTION = Way("horovod.run()", "horovodrun", _function, 'horovod.run(f, num_proc=4, hosts="host1:2,host2:2")')
TORCHRUN = Way(
    "torchrun",
    "torchrun",
    _torchrun,
    "torchrun --nnodes=2 --node-rank=0 --nproc-per-node=2 --master-addr=host1 ... (and 1 on host2)",
    needs_secret=True,
)
SRUN = Way(
    "srun --mpi=none",
    "srun",
    _srun("none"),
    "srun --mpi=none --kill-on-bad-exit=1 -n 4 ...",
    _no_slurm,
    needs_secret=True,
    needs_cluster=True,
)
SRUN_PMI2 = Way(
    "srun --mpi=pmi2, MPICH 5",
    "srun",
    _srun("pmi2"),
    "srun --mpi=pmi2 --kill-on-bad-exit=1 -n 4 ...",
    _no_slurm,
    needs_cluster=True,
)
_OPEN_MPI = "mpirun -np 4 -H host1:2,host2:2 ..."
_HYDRA = "mpiexec -np 4 -hosts host1:2,host2:2 ..."
BY_MPI = tuple(
    Way(name, MPIS[key].name, _mpi(key), shown, MPIS[key].why_absent)
    for key, name, shown in (
        ("openmpi4", "Open MPI 4", _OPEN_MPI),
        ("openmpi5", "Open MPI 5", _OPEN_MPI),
        ("mpich", "MPICH 5", _HYDRA),
        ("intel", "Intel MPI", "mpiexec.hydra -np 4 -ppn 1 -hosts host1,host1,host2,host2 ..."),
    )
)
WAYS = (SSH, FUNCTION, *BY_MPI, SRUN, SRUN_PMI2, TORCHRUN)
