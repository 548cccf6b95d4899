"""The line that starts the ranks of a job with mpirun, for each implementation. Pure.

Used by `launchers.mpirun`. Variables are named on it at most: their values, which may hold passwords, travel in
mpirun's own environment, and by its own connections to other hosts. Facts: the manual pages of mpirun of Open MPI 4 and
5, `prte_info --all`, `ompi_info --all`, `mpiexec --help` of MPICH 5 and Intel MPI 2021.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import Settings
from horovod.runner.machines.hosts import Host
from horovod.runner.mpi import kinds
from horovod.runner.mpi.kinds import Implementation

# From so many hosts on Open MPI's tree of ssh connections is slower than one connection to each.
_MANY_HOSTS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_MPI: Final = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "MPIR_", "I_MPI_")
_SSH_AGENTS: Final = ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_ssh_agent", "PRTE_MCA_plm_ssh_agent")
_SSH_ARGS: Final = ("OMPI_MCA_plm_rsh_args", "OMPI_MCA_plm_ssh_args", "PRTE_MCA_plm_ssh_args")
_OF_SHELL: Final = ("_", "PWD", "OLDPWD", "SHLVL")


class Wanted(NamedTuple):
    """What is to be started.

    Attributes:
        program: mpirun itself.
        hosts: with the ranks that each gets, in the order of the ranks.
        command: of the ranks.
        variables: names of those that ranks on other hosts get; those of this one inherit all.
        host_file: where `host_file` stands, for implementations that read their hosts from a file.
        as_root: mpirun runs as root.
        ssh: further options of the ssh by which it starts ranks on other hosts, behind those that the user has given.
    """

    program: str
    hosts: tuple[Host, ...]
    command: tuple[str, ...]
    variables: tuple[str, ...] = ()
    host_file: str = ""
    as_root: bool = False
    ssh: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(host.slots for host in self.hosts)


def line(wanted: Wanted, settings: Settings, mpi: Implementation) -> list[str]:
    """mpirun and its words.

    Raises:
        InvalidArgumentError: an option cannot be honoured by this implementation.
    """
    build = _hydra if mpi.kind in (kinds.MPICH, kinds.INTEL_MPI) else _open_mpi
    further = split(settings.mpi_args, "--mpi-args")
    return [wanted.program, *build(wanted, settings, mpi), *further, *wanted.command]


def host_file(hosts: Iterable[Host]) -> str:
    """What an implementation reads that takes its hosts from a file: a host and its ranks per line."""
    return "".join(f"{host.hostname}:{host.slots}\n" for host in hosts)


def wants_host_file(mpi: Implementation) -> bool:
    """This implementation reads its hosts from a file: no list on its line gives each a number."""
    return mpi.kind in (kinds.MPICH, kinds.INTEL_MPI)


def ssh_options(environ: Mapping[str, str], patience_s: float) -> tuple[str, ...]:
    """The options of Open MPI's ssh besides port and key: what the environment gives it, which ours on the line would
    replace, and for how long a host may be silent, which the kernel bears for two minutes. Nothing where another
    program takes its place.
    """
    agents = (environ.get(name, "").split() for name in _SSH_AGENTS)
    if any(words and os.path.basename(words[0]) != "ssh" for words in agents):
        return ()
    variable = next((name for name in _SSH_ARGS if environ.get(name)), _SSH_ARGS[0])
    return (*split(environ.get(variable), variable), "-o", f"ConnectTimeout={max(1, int(min(patience_s, 86400.0)))}")


def exported(names: Iterable[str]) -> tuple[str, ...]:
    """Names of variables that can be named on the line, without those by which MPIs talk to themselves, and a shell's
    own."""
    kept = (name for name in names if _NAME.fullmatch(name) and not name.startswith(_OF_MPI) and name not in _OF_SHELL)
    return tuple(sorted(kept))


def split(text: Optional[str], flag: str) -> list[str]:
    """The words of a text, as a shell cuts them.

    Raises:
        InvalidArgumentError: a quotation does not end.
    """
    try:
        return shlex.split(text or "")
    except ValueError as error:
        raise InvalidArgumentError(f"{flag} cannot be split into words: {error}. Received: {text!r}.") from error


def _open_mpi(wanted: Wanted, settings: Settings, mpi: Implementation) -> list[str]:
    """Open MPI 4 and 5 (3 by its documentation), and Spectrum MPI, which is made of it. Since 5 the starter is PRRTE,
    whose parameters have names of their own."""
    prrte = mpi.kind == kinds.OPEN_MPI and mpi.version >= (5,)
    words = ["--allow-run-as-root"] if wanted.as_root else []
    words += _open_mpi_output(settings, prrte)
    words += ["-np", str(wanted.size), "-H", ",".join(host.to_string() for host in wanted.hosts)]
    words += _binding(settings, mpi)
    if settings.tcp and mpi.kind == kinds.SPECTRUM_MPI:
        words.append("-tcp")
    parameter = "--prtemca" if prrte else "--mca"
    start = "plm_ssh" if prrte else "plm_rsh"
    if settings.network_interfaces:
        joined = ",".join(settings.network_interfaces)
        words += ["--mca", "btl_tcp_if_include", joined]
        if len(wanted.hosts) > 1:
            words += [parameter, "prte_if_include" if prrte else "oob_tcp_if_include", joined]
    ssh = [*_ssh_words(settings), *wanted.ssh]
    if ssh:
        words += [parameter, f"{start}_args", shlex.join(ssh)]
    if len(wanted.hosts) >= _MANY_HOSTS:
        words += [parameter, f"{start}_no_tree_spawn", "1"]
        words += [parameter, f"{start}_num_concurrent", str(len(wanted.hosts))]
    return [*words, *(word for name in wanted.variables for word in ("-x", name))]


def _open_mpi_output(settings: Settings, prrte: bool) -> list[str]:
    stamped = bool(settings.prefix_output_with_timestamp)
    if prrte:
        return ["--output", "rank,timestamp" if stamped else "rank"]
    words = ["--tag-output", *(["--timestamp-output"] if stamped else [])]
    return [*words, *(["--output-filename", settings.output_filename] if settings.output_filename else [])]


def _hydra(wanted: Wanted, settings: Settings, mpi: Implementation) -> list[str]:
    """MPICH and Intel MPI."""
    words = ["-prepend-rank", "-np", str(wanted.size), "-machinefile", wanted.host_file]
    words += _binding(settings, mpi)
    if settings.network_interfaces and len(wanted.hosts) > 1:
        if len(settings.network_interfaces) > 1:
            raise InvalidArgumentError(
                f"--network-interfaces: {mpi.kind} takes one interface. Received: "
                f"{','.join(settings.network_interfaces)}."
            )
        words += ["-iface", settings.network_interfaces[0]]
    # MPICH 5 loses some variables of such a list on other hosts; without one it passes all that there are.
    listed = mpi.kind == kinds.INTEL_MPI and wanted.variables
    return [*words, *(["-genvlist", ",".join(wanted.variables)] if listed else [])]


def _binding(settings: Settings, mpi: Implementation) -> Sequence[str]:
    if settings.binding_args:
        return split(settings.binding_args, "--binding-args")
    return {
        # Threads of a rank are not to share one core, which is what Open MPI would bind it to.
        kinds.OPEN_MPI: ("--bind-to", "none", "--map-by", "slot"),
        kinds.SPECTRUM_MPI: ("--bind-to", "socket", "--map-by", "socket"),
    }.get(mpi.kind, ())


def _ssh_words(settings: Settings) -> list[str]:
    port, identity = settings.ssh_port, settings.ssh_identity_file
    return [*(["-p", str(port)] if port else []), *(["-i", identity] if identity else [])]
