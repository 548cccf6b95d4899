"""One small plug-in per launcher: reads the variables by which it tells a process its rank, and checks them.

`detect_placement` asks them in the order of `LAUNCHERS`; the first that recognises its variables decides, none means
a single process. A plug-in that recognises its launcher but finds numbers that contradict one another refuses:
running as a wrong rank, or alone, would "succeed" with wrong results. It opens no file or socket, but for /proc to
name the process that started the ranks.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, MutableMapping
from typing import Callable, NamedTuple, Optional

from horovod._net import identity
from horovod._net.clusters.placement import Placement
from horovod._net.clusters.slurm_counts import in_srun_step, run_lengths
from horovod._net.clusters.users_secret import SECRET_VARIABLE as USERS_SECRET
from horovod._net.failures import PlacementError
from horovod._net.secret import SECRET_BYTES

SECRET_VARIABLE = "_HOROVOD_SECRET_KEY"
DIRECTORY_VARIABLE = "HOROVOD_RENDEZVOUS_DIR"
ADDRESS_VARIABLE = "_HOROVOD_ADDRESS"
_JOB_VARIABLE = "HOROVOD_JOB_ID"
# Families of MPI libraries: whose launchers can start ranks that use whose libraries.
OPEN_MPI = "Open MPI"
MPICH = "MPICH"
HANGING_OPEN_MPI = "3.1.3"
HANGING_REMARK = f"Open MPI {HANGING_OPEN_MPI} is known to hang; use 3.1.2, or 4.0.0 and later."
_LARGEST = 1 << 24  # ranks; anything above is a mistake, not a job

Environment = Mapping[str, str]


class Numbers(NamedTuple):
    """What a plug-in found out. `None` = the launcher does not say."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: Optional[int] = None
    cross_size: Optional[int] = None


class Launcher(NamedTuple):
    """One launcher.

    Attributes:
        name: of it, for messages.
        present: these are its variables.
        numbers: reads them.
        rank_variables: that tell a process its rank.
        job_variables: that tell its jobs apart.
        mpi: which MPI libraries it starts: of one family, any ("") or none (None).
        named: by the first of `job_variables`, where it is set, a job is named as no other job of a host ever is.
            Else the name of the process that has started the ranks goes with it.
    """

    name: str
    present: Callable[[Environment], bool]
    numbers: Callable[[Environment, str], Numbers]
    rank_variables: tuple[str, ...]
    job_variables: tuple[str, ...]
    mpi: Optional[str] = None
    named: bool = False


def whole_number(env: Environment, name: str, launcher: str, least: int = 0) -> int:
    """The variable as a number.

    Raises:
        PlacementError: it is absent, not a whole number, or below `least`.
    """
    text = env.get(name)
    if text is None:
        given = [each for row in LAUNCHERS if row.name == launcher for each in row.rank_variables if each in env]
        raise PlacementError(
            f"{launcher}: {given[0]} is set, but {name} is not. Start the ranks with horovodrun, or remove "
            f"{', '.join(given)} to run a single process."
        )
    digits = text.strip()  # more than int() takes off by itself
    if not re.fullmatch(r"[0-9]{1,9}", digits) or not least <= int(digits) <= _LARGEST:
        raise PlacementError(
            f"{launcher}: {name} must be a whole number from {least} to {_LARGEST}. Received: {text!r}."
        )
    return int(digits)


def _optional(env: Environment, name: str, launcher: str, least: int = 0) -> Optional[int]:
    return whole_number(env, name, launcher, least) if name in env else None


def _four(
    rank: str, size: str, local_rank: str, local_size: str, cross: tuple[str, str] = ("", "")
) -> Callable[[Environment, str], Numbers]:
    """A reader for launchers that give all four numbers in four variables."""

    def read(env: Environment, launcher: str) -> Numbers:
        return Numbers(
            whole_number(env, rank, launcher),
            whole_number(env, size, launcher, 1),
            whole_number(env, local_rank, launcher),
            whole_number(env, local_size, launcher, 1),
            _optional(env, cross[0], launcher),
            _optional(env, cross[1], launcher, 1),
        )

    return read


def tasks_per_node(text: str) -> list[int]:
    """Slurm's run-length list: "2(x3),1" is [2, 2, 2, 1].

    Raises:
        PlacementError: not of that form.
    """
    counts = run_lengths(text)
    if counts is None:
        raise PlacementError(f"srun: SLURM_STEP_TASKS_PER_NODE must be a list like '2(x3),1'. Received: {text!r}.")
    return counts


def _srun_numbers(env: Environment, launcher: str) -> Numbers:
    # SLURM_NTASKS may describe the allocation; the step's own number counts.
    size = whole_number(env, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS", launcher, 1)
    counts = tasks_per_node(env["SLURM_STEP_TASKS_PER_NODE"]) if "SLURM_STEP_TASKS_PER_NODE" in env else [size]
    node = whole_number(env, "SLURM_NODEID", launcher) if len(counts) > 1 else 0
    if node >= len(counts) or sum(counts) != size:
        raise PlacementError(
            f"{launcher}: SLURM_STEP_TASKS_PER_NODE={env.get('SLURM_STEP_TASKS_PER_NODE')!r} does not describe {size} "
            f"tasks with node {node} among its nodes; start the program with srun, which sets both."
        )
    local_rank = whole_number(env, "SLURM_LOCALID", launcher)
    return Numbers(whole_number(env, "SLURM_PROCID", launcher), size, local_rank, counts[node], node, len(counts))


def _pmix_numbers(env: Environment, launcher: str) -> Numbers:
    # PMIx puts only the rank into the environment; the size sits behind its library.
    if "HOROVOD_SIZE" not in env:
        raise PlacementError(
            f"PMIx: PMIX_RANK={env['PMIX_RANK']!r} is set, but the number of ranks is not known, because PMIx does not "
            "put it into the environment. Start with horovodrun, mpirun or srun, or set HOROVOD_SIZE to the number of "
            f"ranks: all on one host, or with {USERS_SECRET} on several."
        )
    return _without_hosts(env, whole_number(env, "PMIX_RANK", launcher), whole_number(env, "HOROVOD_SIZE", launcher, 1))


def _pmi_numbers(env: Environment, launcher: str) -> Numbers:
    # Plain PMI (mpiexec.gforker) starts ranks on one host. Were there several, the ranks would miss one another in
    # init; taking each for a job of its own would "succeed".
    return _without_hosts(env, whole_number(env, "PMI_RANK", launcher), whole_number(env, "PMI_SIZE", launcher, 1))


def _without_hosts(env: Environment, rank: int, size: int) -> Numbers:
    """Of a launcher that tells nothing of hosts: there is one, unless the user has given a secret to meet across hosts.
    Then each rank may have one to itself, until they have met."""
    return Numbers(rank, size, 0, 1) if env.get(USERS_SECRET) else Numbers(rank, size, rank, size)


def _flux_numbers(env: Environment, launcher: str) -> Numbers:
    rank, size = whole_number(env, "FLUX_TASK_RANK", launcher), whole_number(env, "FLUX_JOB_SIZE", launcher, 1)
    nodes = _optional(env, "FLUX_JOB_NNODES", launcher, 1) or 1
    if nodes == 1:
        return Numbers(rank, size, whole_number(env, "FLUX_TASK_LOCAL_ID", launcher), size)
    local_rank = whole_number(env, "FLUX_TASK_LOCAL_ID", launcher)
    # Unequal numbers on the nodes: how many are here shows when the ranks meet.
    return Numbers(rank, size, local_rank, size // nodes if size % nodes == 0 else local_rank + 1)


def _has(*names: str) -> Callable[[Environment], bool]:
    return lambda env: all(name in env for name in names)


_JSM = "JSM_NAMESPACE_"
_OMPI = "OMPI_COMM_WORLD_"
_MV2 = "MV2_COMM_WORLD_"

LAUNCHERS: tuple[Launcher, ...] = (
    Launcher(
        "horovodrun",
        _has("HOROVOD_RANK"),
        _four(
            "HOROVOD_RANK",
            "HOROVOD_SIZE",
            "HOROVOD_LOCAL_RANK",
            "HOROVOD_LOCAL_SIZE",
            ("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"),
        ),
        ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK"),
        (_JOB_VARIABLE,),
        named=True,
    ),
    # LOCAL_RANK is required: some platforms set RANK and WORLD_SIZE to node numbers.
    Launcher(
        "torchrun",
        _has("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        _four("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", ("GROUP_RANK", "GROUP_WORLD_SIZE")),
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
    ),
    Launcher(
        "Open MPI",
        _has(_OMPI + "RANK"),
        _four(_OMPI + "RANK", _OMPI + "SIZE", _OMPI + "LOCAL_RANK", _OMPI + "LOCAL_SIZE"),
        (_OMPI + "RANK", _OMPI + "SIZE", "PMIX_NAMESPACE"),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
        OPEN_MPI,
    ),
    # Hydra, MPICH's or Intel's. Without MPI_LOCALRANKID it is srun --mpi=pmi2 or PALS, which also speak PMI.
    Launcher(
        "Intel MPI",
        _has("PMI_RANK", "MPI_LOCALRANKID", "I_MPI_HYDRA_UUID"),
        _four("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "I_MPI_HYDRA_UUID"),
        ("I_MPI_HYDRA_UUID",),
        MPICH,
    ),
    Launcher(
        "MPICH",
        _has("PMI_RANK", "MPI_LOCALRANKID"),
        _four("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
        (),
        MPICH,
    ),
    Launcher(
        "MVAPICH2",
        _has(_MV2 + "RANK"),
        _four(_MV2 + "RANK", _MV2 + "SIZE", _MV2 + "LOCAL_RANK", _MV2 + "LOCAL_SIZE"),
        (_MV2 + "RANK", _MV2 + "SIZE"),
        (),
        MPICH,
    ),
    Launcher(
        "srun",
        in_srun_step,
        _srun_numbers,
        ("SLURM_PROCID", "SLURM_STEP_ID"),
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "SLURM_JOBID", "SLURM_STEPID"),  # the last two: old
        "",
        named=True,
    ),
    Launcher(
        "PALS",
        _has("PALS_RANKID"),
        _four("PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"),
        ("PALS_RANKID",),
        ("PALS_APID",),
        MPICH,
    ),
    Launcher("Flux", _has("FLUX_TASK_RANK"), _flux_numbers, ("FLUX_TASK_RANK",), ("FLUX_JOB_ID",), ""),
    Launcher(
        "jsrun",
        _has(_JSM + "RANK"),
        _four(_JSM + "RANK", _JSM + "SIZE", _JSM + "LOCAL_RANK", _JSM + "LOCAL_SIZE"),
        (_JSM + "RANK",),
        ("LSB_JOBID",),
        "",
    ),
    # After all that speak PMI and say more.
    Launcher("PMI", _has("PMI_RANK", "PMI_SIZE"), _pmi_numbers, ("PMI_RANK", "PMI_SIZE"), ("PMI_JOBID",), MPICH),
    # Last: PMIX_RANK is also set by Open MPI, srun --mpi=pmix and PRRTE-based launchers that say more.
    Launcher("PMIx", _has("PMIX_RANK"), _pmix_numbers, ("PMIX_RANK",), ("PMIX_NAMESPACE",), ""),
)

_secret_lock = threading.Lock()
_secret_text: Optional[str] = (
    None  # guarded by _secret_lock; kept for a second init, since the variable is removed at the first
)


def _take_secret(env: MutableMapping[str, str]) -> Optional[bytes]:
    """Reads the launcher's secret and removes it from the environment, so that no child process inherits it."""
    global _secret_text
    with _secret_lock:
        text = env.pop(SECRET_VARIABLE, None)
        if env is os.environ:
            text = _secret_text = text if text is not None else _secret_text
    if text is None:
        return None
    if not re.fullmatch(rf"[0-9a-fA-F]{{{2 * SECRET_BYTES}}}", text):
        raise PlacementError(
            f"{SECRET_VARIABLE} must be {2 * SECRET_BYTES} hexadecimal digits (a {8 * SECRET_BYTES}-bit secret); it "
            "is malformed."
        )
    return bytes.fromhex(text)


def mpi_family(launcher: str) -> Optional[str]:
    """Which MPI libraries this launcher starts: OPEN_MPI, MPICH, any (""); None: it is none of an MPI."""
    return next((each.mpi for each in LAUNCHERS if each.name == launcher), None)


def _cross(numbers: Numbers, launcher: str) -> Optional[tuple[int, int]]:
    """This host's number among the hosts; where the launcher does not say, ranks must be in blocks of equal size.

    Returns:
        None: they are not, but the ranks can tell one another through MPI.
    """
    if numbers.local_size == numbers.size:
        return 0, 1
    if numbers.cross_rank is not None and numbers.cross_size is not None:
        return numbers.cross_rank, numbers.cross_size
    if (
        numbers.local_size > numbers.size
        or numbers.size % numbers.local_size
        or numbers.rank % numbers.local_size != numbers.local_rank
    ):
        if mpi_family(launcher) is not None and numbers.local_size <= numbers.size:
            return None
        raise PlacementError(
            f"{launcher}: rank {numbers.rank} of {numbers.size} with local rank {numbers.local_rank} of "
            f"{numbers.local_size} does not say which host this "
            "is: hosts with unequal numbers of ranks, or ranks that are not consecutive on a host, need horovodrun "
            "or srun."
        )
    return numbers.rank // numbers.local_size, numbers.size // numbers.local_size


def _refuse_size_without_rank(env: Environment) -> None:
    size = env.get("HOROVOD_SIZE", "").strip()
    if size not in ("", "1"):
        raise PlacementError(
            f"HOROVOD_SIZE={size} is set, but HOROVOD_RANK is not, nor is any rank variable of another launcher: the "
            "rank of this process is not known, and without one it would train alone. Start it with "
            "horovodrun, mpirun, srun or torchrun; set HOROVOD_RANK, HOROVOD_LOCAL_RANK and HOROVOD_LOCAL_SIZE too; or "
            "unset HOROVOD_SIZE to run a single process."
        )


def detect_placement(env: Optional[MutableMapping[str, str]] = None) -> Placement:
    """Finds out from the launcher's variables which rank this process is.

    Args:
        env: the environment; default os.environ. The secret's variable is removed from it.

    Returns:
        The placement; size 1 when no launcher is recognised.

    Raises:
        PlacementError: variables of a launcher are there but missing, malformed or contradictory; or a size is given,
            and no rank.
    """
    env = os.environ if env is None else env
    secret = _take_secret(env)
    launcher = next((launcher for launcher in LAUNCHERS if launcher.present(env)), None)
    host = env.get("HOROVOD_HOSTNAME") or identity.hostname()
    if launcher is None:
        _refuse_size_without_rank(env)
        return Placement(0, 1, 0, 1, 0, 1, "single process", f"single process/{os.getpid()}", host)
    numbers = launcher.numbers(env, launcher.name)
    directory = env.get(DIRECTORY_VARIABLE) or None
    if launcher.name != "horovodrun":
        # A rank of horovodrun that itself runs mpirun: the inner job must not meet in the outer job's directory.
        directory = secret = None
    elif directory is not None and secret is None:
        raise PlacementError(
            f"{DIRECTORY_VARIABLE} is set but {SECRET_VARIABLE} is not: the secret is given to the ranks only, and a "
            "process that a rank starts "
            "does not inherit it. Such a process cannot join the job; remove the HOROVOD_ variables from its "
            "environment."
        )
    job = [launcher.name, *(f"{name}={env.get(name, '')}" for name in launcher.job_variables)]
    starter = ""
    # A rank of a job has its id, and so has what it starts, which is another job.
    inherited = directory is None and (ADDRESS_VARIABLE in env or "HOROVOD_ELASTIC" in env)
    if inherited or not (launcher.named and env.get(launcher.job_variables[0])):
        if directory is None:
            own = ((name, env.get(name, "")) for name in launcher.rank_variables if name in env)
            starter = identity.launching_process(own)
            job.append(starter)
        elif numbers.local_size == numbers.size:  # else each host has a directory of its own
            job.append(directory)
    cross = _cross(numbers, launcher.name)
    return Placement(
        numbers.rank,
        numbers.size,
        numbers.local_rank,
        numbers.local_size,
        *(cross or (0, 1)),
        launcher.name,
        "/".join(job),
        host,
        directory,
        secret,
        address=env.get(ADDRESS_VARIABLE, "") if secret is not None else "",
        unplaced=cross is None,
        starter=starter,
    )
