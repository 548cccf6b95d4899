"""Settings are read in one place: nothing else looks into the environment, but what is no setting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import horovod

PACKAGE = Path(horovod.__file__).parent
# File -> why it may.
MAY = {
    "_core/settings/values.py": "reads the settings, for everybody",
    "_core/life/context.py": "HOROVOD_EPOCH, the launcher's count of changes of the job",
    "_core/life/engine_start.py": "NVTX_INJECTION64_PATH, a profiler's",
    "_core/life/given_placement.py": "the number that the launcher has given this worker",
    "_core/life/planes/gpu_plane.py": "where NCCL may lie, LD_LIBRARY_PATH, the system's",
    "_core/life/membership.py": "the number that the launcher has given this worker, and its directory",
    "_core/training/elastic/durable.py": "the names of the job that its launcher and the scheduler give",
    "_core/compat/legacy.py": "`env` sets variables for the length of a block",
    "_native/lane.py": "HOROVOD_LANE, as soon as the package is imported",
    "_native/library.py": "HOROVOD_LIBRARY, before there is anything that could parse settings",
    "_net/clusters/launchers.py": "the variables by which launchers tell a process its rank",
    "runner/doctor/checks.py": "where an MPI library and NCCL may lie, the system's variables",
    "_core/life/fact_exchange.py": "where an MPI library may lie, the system's variables",
    "_net/fact_exchange.py": "the network interfaces that an MPI was given, its own variables",
    "_net/meeting/private_directories.py": "XDG_RUNTIME_DIR, the system's",
    "_net/mpi/library.py": "FI_PROVIDER_PATH, libfabric's",
    "_net/mpi/session.py": "where an MPI library may lie, the system's variables",
    "keras/installed.py": "TF_USE_LEGACY_KERAS, TensorFlow's",
    "lightning/environment.py": "MASTER_ADDR and MASTER_PORT, torch.distributed's",
    "torch/distributed/registration.py": "variables of torch.distributed, and those of libraries on it",
    "runner/cli.py": "gives it to the table, and to the ranks",
    "runner/doctor/command.py": "gives it to the table, and to the probes",
    "runner/function.py": "gives it to the table, and to the ranks",
    "runner/helpers.py": "import paths of other people's: what a process would inherit, and LSF's variables",
    "runner/launch.py": "gives it to the table, and to the ranks",
    "runner/remote/ways/by_process.py": "what ssh, and an agent on this host, are started with",
    "runner/remote/agent.py": "SSH_CONNECTION, ssh's",
    "runner/remote/host_side/workplace.py": "what a host's ranks have of their host",
    "runner/run_task.py": "what the launcher has told this rank",
    "runner/processes/runtime_directory.py": "XDG_RUNTIME_DIR, the system's",
    "runner/doctor/availability.py": "PATH; and gives it to the process that tries the core",
    "ray/environment.py": "gives it to the table",
    "ray/here.py": "sets what its rank is told",
    "spark/common/on_rank.py": "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX, of the ranks of an estimator",
    "spark/common/prediction.py": "sets what another process has said of its Keras",
    "spark/common/store.py": "whether this is Databricks, and how long files take to appear there",
    "spark/driving.py": "gives it to the table",
    "spark/lightning/remote.py": "MASTER_ADDR, and sets it for torch.distributed",
    "spark/running.py": "HOROVOD_SPARK_START_TIMEOUT, of the driver",
    "spark/task.py": "the GPUs that the launcher has named to this rank",
    "spark/tasks.py": "what the ranks of an executor have of it",
    "tensorflow/data/compute_worker.py": "HOROVOD_HOSTNAME and the address, which the launcher has set",
}


def reads(path: Path) -> Iterator[int]:
    """Lines that name `os.environ` or `os.getenv`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr in ("environ", "environb", "getenv"):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {alias.name for alias in node.names}
            if names & {"environ", "environb", "getenv"}:
                yield node.lineno


def test_nothing_else_reads_the_environment() -> None:
    found = {str(path.relative_to(PACKAGE)): list(reads(path)) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {name for name, lines in found.items() if lines} == set(MAY)
