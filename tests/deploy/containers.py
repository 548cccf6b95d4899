"""The image's ssh configuration, with a key for one job, where no image is; for tests/hosts too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from jobs import ROOT

SSHD = "/usr/sbin/sshd"
_RECIPE = ROOT / "deploy" / "docker"


class Container:
    """What containers of a job have for ssh, below a folder; the job's key is in it, as the MPI operator makes it.

    Args:
        place: a new folder.
        port: of the server.

    Attributes:
        key: the job's.
        ssh_config: of the client.
        server: the words that start the server, as in a worker.
    """

    def __init__(self, place: Path, port: int) -> None:
        self.key = place / "home" / ".ssh" / "id_rsa"
        self.key.parent.mkdir(parents=True)
        words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(self.key)]
        subprocess.run(words, check=True)
        shutil.copy(f"{self.key}.pub", self.key.with_name("authorized_keys"))
        moved = {
            "/home/horovod": str(place / "home"),
            "/usr/local/bin/job-host-key": str(_RECIPE / "job-host-key"),
            "%d/": f"{place}/home/",
            "~/": f"{place}/home/",
            "Port 2222": f"Port {port}",
            "PermitRootLogin no": "PermitRootLogin prohibit-password",  # the user of a test may be root
        }
        for name in ("sshd_config", "ssh_config"):
            text = (_RECIPE / name).read_text()
            for old, new in moved.items():
                text = text.replace(old, new)
            (place / name).write_text(text)
        self.ssh_config = place / "ssh_config"
        self.server = [SSHD, "-De", "-f", str(place / "sshd_config")]
