"""The image's recipe by hadolint, and the trust between its containers, by its own configuration and a real ssh server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .tools import DEPLOY, checker

RECIPES = (DEPLOY / "docker" / "Dockerfile", DEPLOY / "azureml" / "environment" / "Dockerfile")
SSHD = "/usr/sbin/sshd"
_PATIENCE_S = 20.0


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.parent.name)
def test_hadolint_is_content(recipe: Path) -> None:
    done = checker("hadolint", "--no-color", str(recipe))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("USER ${UID}", "USER root", "DL3002"),
        (" --no-install-recommends", "", "DL3015"),
        ("--no-cache-dir", "", "DL3042"),
        ("FROM ${BASE}", "FROM python:latest", "DL3007"),
    ],
)
def test_hadolint_finds_what_is_wrong(old: str, new: str, rule: str, tmp_path: Path) -> None:
    text = RECIPES[0].read_text()
    assert old in text
    (tmp_path / "Dockerfile").write_text(text.replace(old, new))
    assert rule in checker("hadolint", "--no-color", str(tmp_path / "Dockerfile")).stdout


def test_what_is_copied_into_the_image_is_there() -> None:
    for line in RECIPES[0].read_text().splitlines():
        if line.startswith("COPY"):
            *sources, _ = [word for word in line.split()[1:] if not word.startswith("--")]
            assert all((DEPLOY.parent / source).is_file() for source in sources), line


class Container:
    """What a container of the image has for ssh, below a folder, with the job's key in it; its server can be started.

    Attributes:
        port: of its server.
        key: the job's.
    """

    def __init__(self, place: Path) -> None:
        self.key = place / "home" / ".ssh" / "id_rsa"
        self.key.parent.mkdir(parents=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # As the operator makes it.
        words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(self.key)]
        subprocess.run(words, check=True)
        shutil.copy(f"{self.key}.pub", self.key.with_name("authorized_keys"))
        moved = {
            "/home/horovod": str(place / "home"),
            "/usr/local/bin/job-host-key": str(DEPLOY / "docker" / "job-host-key"),
            "%d/": f"{place}/home/",
            "~/": f"{place}/home/",
            "Port 2222": f"Port {self.port}",
            "PermitRootLogin no": "PermitRootLogin prohibit-password",  # the user of this test may be root
        }
        for name in ("sshd_config", "ssh_config"):
            text = (DEPLOY / "docker" / name).read_text()
            for old, new in moved.items():
                text = text.replace(old, new)
            (place / name).write_text(text)
        self._place = place

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the server, as the operator starts it in a worker; returns when it listens."""
        words = [SSHD, "-De", "-f", str(self._place / "sshd_config"), "-o", "ListenAddress=127.0.0.1"]
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=(self._place / "log").open("wb"))
        deadline = time.monotonic() + _PATIENCE_S
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert server.poll() is None and time.monotonic() < deadline, (self._place / "log").read_text()
            time.sleep(0.02)
        return server

    def call(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the container whose server listens at this port, from here."""
        words = ["ssh", "-F", str(self._place / "ssh_config"), "-o", "BatchMode=yes", *options, "127.0.0.1", "echo inside"]
        return subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Container]:
    """A container whose server runs."""
    if not os.access(SSHD, os.X_OK) or not shutil.which("ssh"):
        pytest.skip("sshd or ssh is not installed; `make hosts` installs them.")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # of a server that root starts
    made = Container(tmp_path / "worker")
    server = made.start()
    yield made
    server.terminate()
    server.wait(_PATIENCE_S)


def test_who_has_the_job_s_key_comes_in_and_knows_the_server(worker: Container) -> None:
    done = worker.call()
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


def test_another_job_s_server_is_refused(worker: Container, tmp_path: Path) -> None:
    """The key is right, but the server shows another one: it could read what the launcher sends."""
    stranger = Container(tmp_path / "stranger")
    done = stranger.call("-p", str(worker.port), "-i", str(worker.key))
    assert done.returncode == 255 and "Host key verification failed" in done.stderr, done.stderr


def test_who_has_another_key_stays_out(worker: Container, tmp_path: Path) -> None:
    stranger = Container(tmp_path / "stranger")
    known = f"KnownHostsCommand={DEPLOY}/docker/job-host-key {worker.key}.pub %H"
    done = stranger.call("-p", str(worker.port), "-o", known)
    assert done.returncode == 255 and "Permission denied (publickey)" in done.stderr, done.stderr
