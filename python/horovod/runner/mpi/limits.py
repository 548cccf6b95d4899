"""The options of horovodrun that do not work when mpirun starts the ranks: refused by name. Pure.

Used by `launchers.mpirun`.
"""

from __future__ import annotations

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.settings import Settings
from horovod._net.clusters.launchers import HANGING_OPEN_MPI, HANGING_REMARK
from horovod.runner.machines.hosts import Host
from horovod.runner.mpi import kinds
from horovod.runner.mpi.kinds import Implementation


def refuse_unmet(settings: Settings, mpi: Implementation) -> None:
    """Refuses options that would have no effect.

    Raises:
        UnsupportedError: one of them was given.
    """
    hydra = mpi.kind in (kinds.MPICH, kinds.INTEL_MPI)
    files = "write the files yourself, with --mpi-args '-outfile-pattern DIR/%r.out'"
    if not hydra:
        files = "redirect the output of each rank in a script around the program"
    prrte = not hydra and mpi.version >= (5,) and mpi.kind == kinds.OPEN_MPI
    unmet = (
        ("--ranks", settings.shown_ranks, "mpirun prints the output of all ranks", "leave it out"),
        ("--stdin-rank", settings.stdin_rank is not None, "mpirun controls the ranks' input", "leave --mpi out"),
        (
            "--metrics-port",
            settings.metrics_port is not None,
            "mpirun starts the ranks, whose figures do not reach horovodrun",
            "leave it, or --mpi, out",
        ),
        ("--output-filename", settings.output_filename and (hydra or prrte), f"{mpi.kind} has no such files", files),
        (
            "--prefix-output-with-timestamp",
            settings.prefix_output_with_timestamp and hydra,
            f"{mpi.kind} puts either the time or the rank before a line",
            "leave it out",
        ),
        (
            "--ssh-port and --ssh-identity-file",
            (settings.ssh_port or settings.ssh_identity_file) and hydra,
            f"{mpi.kind} calls ssh without options",
            "write them into ~/.ssh/config",
        ),
    )
    for flag, given, fact, remedy in unmet:
        if given:
            raise UnsupportedError(f"{flag} does not work with --mpi: {fact}. Remedy: {remedy}.")


def refuse_addresses(hosts: tuple[Host, ...]) -> None:
    """IPv6 addresses, for which lists of hosts and slots have no room.

    Raises:
        InvalidArgumentError: there is one.
    """
    addresses = [host.hostname for host in hosts if ":" in host.hostname]
    if addresses:
        raise InvalidArgumentError(f"--mpi: mpirun takes no IPv6 address such as {addresses[0]}; name the host.")


def remarks(mpi: Implementation) -> list[str]:
    """What there is to say of this version."""
    if mpi.kind == kinds.OPEN_MPI and mpi.version == tuple(map(int, HANGING_OPEN_MPI.split("."))):
        return [HANGING_REMARK]
    return []
