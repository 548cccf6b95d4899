"""The recipes by hadolint, and the trust between containers, by the image's configuration and a real ssh server."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .containers import SSHD, Container
from .tools import DEPLOY, checker

RECIPES = [DEPLOY / name / "Dockerfile" for name in ("docker", "azureml/environment", "sagemaker")]
_PATIENCE_S = 20.0
# Where this test is root, the server is not: it sees an account like the image's.
_USER = "horovod" if os.geteuid() == 0 else getpass.getuser()
_ACCOUNT = "horovod:x:1000:1000::{home}:/bin/sh\n"
_AS_USER = 'mount --bind "$0" /etc/passwd && exec setpriv --reuid 1000 --regid 1000 --clear-groups "$@"'


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


def call(client: Container, *options: str) -> subprocess.CompletedProcess[str]:
    """Asks for the user over there, with this client's configuration and key."""
    words = ["ssh", "-F", str(client.ssh_config), "-o", "BatchMode=yes", "-l", _USER, *options, "127.0.0.1", "id -u"]
    return subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S)


@pytest.fixture
def port() -> int:
    """At which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(params=["docker", "kubernetes"])
def worker(port: int, request: pytest.FixtureRequest) -> Iterator[Container]:
    """A container whose server runs, not as root; the key's files are its user's, or root's as in a mounted Secret."""
    if not os.access(SSHD, os.X_OK) or not shutil.which("ssh"):
        pytest.skip("sshd or ssh is not installed; `make hosts` installs them.")
    with tempfile.TemporaryDirectory(prefix="hvddeploy") as folder, Path(folder, "log").open("w") as log:
        os.chmod(folder, 0o755)  # pytest's own folders are closed to other users
        made = Container(Path(folder, "worker"), port)
        words = [*made.server, "-o", "ListenAddress=127.0.0.1"]
        if os.geteuid() == 0:
            (Path(folder) / "passwd").write_text(_ACCOUNT.format(home=folder) + Path("/etc/passwd").read_text())
            for path in (made.key.parent, *made.key.parent.iterdir()):
                if request.param == "docker":
                    os.chown(path, 1000, 1000)
                else:
                    path.chmod(0o1777 if path.is_dir() else 0o644)
            words = ["unshare", "--mount", "sh", "-c", _AS_USER, f"{folder}/passwd", *words]
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log)
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while not listens(port):
                assert server.poll() is None and time.monotonic() < deadline, Path(folder, "log").read_text()
                time.sleep(0.02)
            yield made
        finally:
            server.terminate()
            server.wait(_PATIENCE_S)


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_who_has_the_job_s_key_comes_in_and_knows_the_server(worker: Container, tmp_path: Path) -> None:
    key = shutil.copy(worker.key, tmp_path)  # the client wants it closed to others
    os.chmod(key, 0o600)
    done = call(worker, "-i", key)
    assert (done.returncode, done.stdout) == (0, f"{os.geteuid() or 1000}\n"), done.stderr


def test_another_job_s_server_is_refused(worker: Container, port: int, tmp_path: Path) -> None:
    """The key is right, but the server shows another one: it could read what the launcher sends."""
    done = call(Container(tmp_path / "stranger", port), "-i", str(worker.key))
    assert done.returncode == 255 and "Host key verification failed" in done.stderr, done.stderr


def test_who_has_another_key_stays_out(worker: Container, port: int, tmp_path: Path) -> None:
    known = f"KnownHostsCommand={DEPLOY}/docker/job-host-key {worker.key}.pub %H"
    done = call(Container(tmp_path / "stranger", port), "-o", known)
    assert done.returncode == 255 and "Permission denied (publickey)" in done.stderr, done.stderr
