"""What can be wrong with the second host of a job, for each way to start it: how it is made, and what is said. Data.

Where ranks are started by ssh the key is that of ssh; where they are started otherwise it is the user's secret. Used by
`launcher_table` and by the tests, which run a few of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Callable, Optional

from .conftest import Hosts
from .mistakes import blocked_port, instead, no_python, other_version, wrong_key
from .mpi.mpi_rank import FIREWALL_RULES
from .ways import SRUN, SRUN_PMI2, Order, Way, write_secret

_PORT = 24123
_SHORT = {"HOROVOD_START_TIMEOUT": "4", "HOROVOD_GLOO_TIMEOUT_SECONDS": "4"}
_LIMIT_S = 40.0
# By which an MPI has its ssh give up; else the kernel does, after two minutes.
_CONNECT = "-o ConnectTimeout=4"
SSH_ENDS = {
    "Open MPI 4": {"OMPI_MCA_plm_rsh_args": _CONNECT},
    "Open MPI 5": {"PRTE_MCA_plm_ssh_args": _CONNECT},
    "MPICH 5": {"HYDRA_LAUNCHER_EXTRA_ARGS": _CONNECT},
    "Intel MPI": {"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _CONNECT},
}

Made = contextlib.AbstractContextManager[Order]


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One mistake.

    Attributes:
        name: in the table.
        made: makes it for a job, and undoes it in the end; gives the job as it is then to be started.
        said: by kind of way ("ssh", "secret", "mpi", or its name, which wins), what a line must match.
    """

    name: str
    made: Callable[[Hosts, Way, Order], Made]
    said: Mapping[str, str]

    def pattern(self, way: Way) -> Optional[str]:
        """What must be said; None: this mistake cannot be made there."""
        return self.said.get(way.name, self.said.get(kind(way)))

    def line(self, way: Way, said: str) -> str:
        """The line that says it, among all that was printed; empty when none does."""
        pattern = self.pattern(way) or ""
        return next((line.strip() for line in said.splitlines() if re.search(pattern, line)), "")


def kind(way: Way) -> str:
    """Who reaches the other hosts: our own ssh, an MPI, or Slurm and torchrun with the user's secret."""
    if way.launcher == "horovodrun":
        return "ssh"
    return "secret" if way.needs_secret else "mpi"


@contextlib.contextmanager
def _unknown_host(hosts: Hosts, way: Way, order: Order) -> Iterator[Order]:
    if way.launcher == "torchrun":  # its agents are started by hand: what may be unknown is where they meet
        yield dataclasses.replace(order, environ={**order.environ, "HOROVOD_MEETING_ADDRESS": "nosuchhost"})
    else:
        yield dataclasses.replace(order, names=("host1", "nosuchhost"))


@contextlib.contextmanager
def _wrong_key(hosts: Hosts, way: Way, order: Order) -> Iterator[Order]:
    if way.needs_secret:
        assert order.secret is not None
        with instead(hosts, write_secret(order.folder, "other"), order.secret):
            yield order
    else:
        with wrong_key(hosts, order.folder) as setting:
            ours = ["--ssh-identity-file", str(setting.keywords["ssh_identity_file"])] if kind(way) == "ssh" else []
            yield dataclasses.replace(order, options=[*order.options, *ours])


@contextlib.contextmanager
def _no_python(hosts: Hosts, way: Way, order: Order) -> Iterator[Order]:
    with no_python(hosts, order.folder) as setting:
        yield dataclasses.replace(order, rank=[setting.executable, *order.rank[1:]])


@contextlib.contextmanager
def _other_version(hosts: Hosts, way: Way, order: Order) -> Iterator[Order]:
    with other_version(hosts, order.folder):
        yield order


@contextlib.contextmanager
def _firewall(hosts: Hosts, way: Way, order: Order) -> Iterator[Order]:
    """The ranks of the second host close it themselves, once they run."""
    try:
        # `order` has the command of a rank, of which the last word is the part that it plays.
        yield dataclasses.replace(
            order, rank=[*order.rank[:-1], "behind_a_firewall"], environ={**order.environ, **_SHORT}, within_s=_LIMIT_S
        )
    finally:
        rules = f"for rule in $(seq {FIREWALL_RULES.start} {FIREWALL_RULES[-1]}); do ip rule del pref $rule; done; true"
        hosts.network[2].enter("sh", "-c", f"({rules}) 2>/dev/null")


@contextlib.contextmanager
def _blocked_port(hosts: Hosts, way: Way, order: Order) -> Iterator[Order]:
    if way.needs_secret:
        rule = ("ipproto", "tcp", "sport", str(_PORT), "blackhole")
        hosts.network[1].enter("ip", "rule", "add", *rule)
        try:
            yield dataclasses.replace(
                order, environ={**order.environ, **_SHORT, "HOROVOD_MEETING_ADDRESS": f"host1:{_PORT}"}
            )
        finally:
            hosts.network[1].enter("ip", "rule", "del", *rule)
    else:
        with blocked_port(hosts, Path(order.folder)):
            ours = ["--start-timeout", "2"] if kind(way) == "ssh" else []
            environ = {**order.environ, **(_SHORT if kind(way) == "mpi" else {}), **SSH_ENDS.get(way.name, {})}
            yield dataclasses.replace(order, options=[*order.options, *ours], environ=environ, within_s=_LIMIT_S)


MISTAKES = (
    Mistake(
        "host unknown",
        _unknown_host,
        {
            "ssh": "nosuchhost cannot be used: its name has no address",
            "mpi": "nosuchhost",
            "secret": "nosuchhost",
            **{way.name: "srun: error: .*[Nn]ode" for way in (SRUN, SRUN_PMI2)},
        },
    ),
    Mistake(
        "wrong key",
        _wrong_key,
        {
            "ssh": "host2 cannot be used: it refuses this user's key",
            "mpi": "Permission denied",
            "Intel MPI": "bstrap|bootstrap|proxies",
            "secret": "does not hold this job's secret",
        },
    ),
    Mistake(
        "no Python there",
        _no_python,
        {"ssh": "host2 cannot be used: .*/own/bin/python", "mpi": "own/bin/python", "secret": "own/bin/python"},
    ),
    Mistake(
        "other version there",
        _other_version,
        {
            "ssh": r"host2 cannot be used: it has Horovod 0\.99",
            "mpi": r"Rank 1 on host2 has Horovod 0\.99",
            "secret": r"Rank 1 on host2 has Horovod 0\.99",
        },
    ),
    Mistake(
        "port blocked",
        _blocked_port,
        {
            "ssh": "does a firewall let ssh through",
            "mpi": "port 22: Connection timed out",
            "Intel MPI": "Unable to run bstrap_proxy on host2",
            SRUN_PMI2.name: r"This is rank 0 of 2 on host1.* some have not come, or cannot be reached",
            "secret": f"port {_PORT}.*does a firewall let the port through",
        },
    ),
    Mistake(
        "firewall between ranks",
        _firewall,
        {
            "ssh": r"Rank [01].*(cannot be reached|did not (show up|connect|come)|does not answer|not connected)",
            "mpi": r"Rank 0 cannot be reached|This is rank \d of 2 on host\d.* some have not come, or cannot be",
            "secret": r"Rank 0 cannot be reached|Rank 1 of 2 did not come",
        },
    ),
)
# The key of a Slurm is munge's, which is the cluster's.
IMPOSSIBLE = {("wrong key", SRUN_PMI2.name)}
