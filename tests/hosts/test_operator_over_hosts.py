"""Jobs as Kubeflow's MPI operator runs them: its hostfile and variables in the launcher, the image's ssh server in the
workers, the lines of deploy/kubernetes. The pods are namespaces, with the names that the operator gives.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from deploy.containers import Container
from deploy.tools import line, manifest_of
from launchers.starters import BY_ID, SYSTEM_PATH

from .conftest import ROOT, Hosts
from .network import Network, why_absent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PODS = ("horovod-launcher", "horovod-worker-0.horovod.default.svc", "horovod-worker-1.horovod.default.svc")
WORKER = """
import numpy as np, horovod.numpy as hvd, os, socket
hvd.init()
total = hvd.allreduce(np.full(3, hvd.rank(), np.float32), op=hvd.Sum)[0]
print("RANK", hvd.rank(), hvd.size(), hvd.local_rank(), socket.gethostname(), int(total))
"""
# What the operator writes for two workers of two slots, by the implementation that the job names.
HOSTFILES = {"OpenMPI": "{} slots=2\n{} slots=2\n", "Intel": "{}:2\n{}:2\n", "MPICH": "{}:2\n{}:2\n"}
VARIABLES = {
    "OpenMPI": {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    },
    "Intel": {
        "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10",
        "I_MPI_PERHOST": "2",
    },
    "MPICH": {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"},
}
OF_ALL = {"K_MPI_JOB_ROLE": "launcher", "NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A launcher and two workers, whose ssh servers have only the job's key."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(reason)
    network = Network(3, PODS)
    job = Container(tmp_path_factory.mktemp("job"), 2222)
    # In place: each pod has these files mounted.
    with (network.place / "hosts").open("a") as file:
        file.writelines(f"{pod.address} {pod.name.partition('.')[0]}\n" for pod in network.hosts[1:])
    (network.place / "ssh_config").write_text(job.ssh_config.read_text())
    for pod in network.hosts[1:]:
        pod.start(["hostname", pod.name.partition(".")[0]], {"PATH": SYSTEM_PATH}).end()
        pod.start(job.server, {"PATH": SYSTEM_PATH}, stdout=-3, stderr=-3)
    yield Hosts(network)
    network.close()


def run(pods: Hosts, kind: str, words: Sequence[str], environ: Mapping[str, str], place: Path) -> list[list[str]]:
    """Runs a launcher's line on two workers; what the ranks have said, in their order."""
    hostfile = place / "hostfile"
    hostfile.write_text(HOSTFILES[kind].format(*PODS[1:]))
    script = place / "train.py"
    script.write_text(WORKER)
    moved = {"/etc/mpi/hostfile": str(hostfile), "/workspace/train.py": str(script), "python": sys.executable}
    given = {name: moved.get(value, value) for name, value in {**OF_ALL, **VARIABLES[kind], **environ}.items()}
    ended = pods.program([moved.get(word, word) for word in words], environ=given)
    assert ended.code == 0, "\n".join([*ended.out, *ended.err])
    said = [text[text.index("RANK") :].split() for text in ended.out if "RANK" in text]
    return sorted(said, key=lambda each: int(each[1]))


EXPECTED = [["RANK", str(n), "4", str(n % 2), f"horovod-worker-{n // 2}", "6"] for n in range(4)]


@pytest.mark.parametrize("kind", list(HOSTFILES))
def test_horovodrun_takes_the_operator_s_hosts(kind: str, pods: Hosts, tmp_path: Path) -> None:
    _, *words = line(manifest_of("mpijob.yaml"))
    assert run(pods, kind, [sys.executable, "-m", "horovod.runner", *words], {}, tmp_path) == EXPECTED


@pytest.mark.parametrize("name", ["openmpi4", "openmpi5"])
def test_mpirun_takes_the_operator_s_hosts(name: str, pods: Hosts, tmp_path: Path) -> None:
    starter = BY_ID[name]
    if why := starter.why_absent():
        pytest.skip(why)
    _, *words = line(manifest_of("mpijob-mpirun.yaml"))
    program = starter.path().split(os.pathsep)[0] + "/mpirun"
    more = ["-x", "PYTHONPATH"]  # of this test: the image has Horovod installed
    environ = {**starter.environ, "PYTHONPATH": str(ROOT / "python")}
    assert run(pods, "OpenMPI", [program, *more, *words], environ, tmp_path) == EXPECTED
