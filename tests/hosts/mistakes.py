"""What can be wrong with a host before a job starts, as data: how it is made, and what a launcher says to it.

Used by the tests, one by one, and by `mistakes_table`, all with every way to start a job.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Union

from .conftest import ROOT, Ended, Hosts

EXAMPLES = ROOT / "examples"
HOSTS = "host1:1,host2:1"
PACKAGE = ROOT / "python" / "horovod"

Keywords = dict[str, Union[str, int]]


@dataclass
class Setting:
    """What a job is started with while a mistake is there.

    Attributes:
        keywords: of `horovod.run`; horovodrun gets them as flags.
        executable: the Python of the launcher, and so of its ranks.
        cwd: where the launcher runs.
    """

    keywords: Keywords
    executable: str = sys.executable
    cwd: str = "/tmp"

    def flags(self) -> list[str]:
        """For horovodrun."""
        return [word for name, value in self.keywords.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@dataclass
class Start:
    """A way to start a job of two ranks.

    Attributes:
        name: in the table.
        program: what horovodrun is given; empty: a program calls `horovod.run`.
    """

    name: str
    program: tuple[str, ...] = ()

    def __call__(self, hosts: Hosts, setting: Setting, environ: Mapping[str, str] = {}) -> Ended:
        """Runs it to its end."""
        python = setting.executable
        if self.program:
            return hosts(
                " ".join(["-np 2", *setting.flags()]),
                [python, *self.program],
                executable=python,
                cwd=setting.cwd,
                environ=environ,
            )
        call = f"import horovod\nhorovod.run(print, ('ran',), num_proc=2, **{setting.keywords!r})\n"
        return hosts.program([python, "-c", call], cwd=setting.cwd, environ=environ)


QUIET = Start("horovodrun", ("-I", "-S", "-c", "print('ran')"))
RUN = Start("horovod.run")
STARTS = (
    QUIET,
    RUN,
    Start("PyTorch", (str(EXAMPLES / "pytorch_digits.py"),)),
    Start("TensorFlow", (str(EXAMPLES / "tensorflow2_tape.py"),)),
    Start("Keras", (str(EXAMPLES / "keras_fit.py"),)),
    Start("data service", ("-m", "horovod.tensorflow.data.compute_worker", "/tmp/compute.json")),
)


@dataclass
class Mistake:
    """Something wrong with a host.

    Attributes:
        name: in the table.
        made: makes it, and in the end undoes it; gets an empty folder.
        said: parts of the message.
        within_s: the message is there.
    """

    name: str
    made: Callable[[Hosts, Path], contextlib.AbstractContextManager[Setting]]
    said: tuple[str, ...]
    within_s: float = 5.0


@contextlib.contextmanager
def _unknown_host(hosts: Hosts, place: Path) -> Iterator[Setting]:
    yield Setting({"hosts": "host1:1,nosuchhost:1"})


@contextlib.contextmanager
def _nothing_listens(hosts: Hosts, place: Path) -> Iterator[Setting]:
    yield Setting({"hosts": HOSTS, "ssh_port": 2222})


@contextlib.contextmanager
def wrong_key(hosts: Hosts, place: Path) -> Iterator[Setting]:
    key = hosts.network.place / "key"
    hidden = key.with_suffix(".hidden")
    os.rename(key, hidden)
    try:
        yield Setting({"hosts": HOSTS, "ssh_identity_file": "/run/hosts/otherkey"})
    finally:
        os.rename(hidden, key)


@contextlib.contextmanager
def instead(hosts: Hosts, source: Path, target: Path) -> Iterator[None]:
    """On the second host, another folder stands there."""
    done = hosts.network[2].start(["mount", "--bind", str(source), str(target)], hosts.environ).end()
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        assert hosts.network[2].start(["umount", str(target)], hosts.environ).end().returncode == 0


@contextlib.contextmanager
def no_python(hosts: Hosts, place: Path) -> Iterator[Setting]:
    own, nothing = place / "own", place / "nothing"
    nothing.mkdir()
    venv.create(own, system_site_packages=True)
    (site,) = own.glob("lib/python*/site-packages")
    (site / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))  # which need not be the system's
    with instead(hosts, nothing, own):
        yield Setting({"hosts": HOSTS}, f"{own}/bin/python")


@contextlib.contextmanager
def instead_of_horovod(hosts: Hosts, source: Path) -> Iterator[Setting]:
    with instead(hosts, source, PACKAGE):
        yield Setting({"hosts": HOSTS})


def _no_horovod(hosts: Hosts, place: Path) -> contextlib.AbstractContextManager[Setting]:
    (place / "__init__.py").touch()  # not just an empty folder, behind which another installation would show
    return instead_of_horovod(hosts, place)


def other_version(hosts: Hosts, place: Path) -> contextlib.AbstractContextManager[Setting]:
    copy = place / "horovod"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / "__init__.py").read_text()
    version = next(line for line in text.splitlines() if line.startswith("__version__"))
    (copy / "__init__.py").write_text(text.replace(version, '__version__ = "0.99"'))
    return instead_of_horovod(hosts, copy)


@contextlib.contextmanager
def blocked_port(hosts: Hosts, place: Path) -> Iterator[Setting]:
    host = hosts.network[2]
    route = ("blackhole", hosts.network[1].address)
    host.enter("ip", "route", "add", *route)
    try:
        yield Setting({"hosts": HOSTS, "start_timeout": 2})
    finally:
        host.enter("ip", "route", "del", *route)


@contextlib.contextmanager
def _no_link(hosts: Hosts, place: Path) -> Iterator[Setting]:
    hosts.network.cut(hosts.network[2])
    try:
        yield Setting({"hosts": HOSTS, "start_timeout": 2})
    finally:
        hosts.network.join(hosts.network[2])


@contextlib.contextmanager
def _full_disk(hosts: Hosts, place: Path) -> Iterator[Setting]:
    fill = "for at in /tmp /var/tmp; do mount -t tmpfs -o size=4k t $at; done; mount -o remount,size=4k /dev/shm"
    empty = "umount /tmp; umount /var/tmp; mount -o remount,size=512m /dev/shm"
    assert hosts.network[2].start(["sh", "-c", fill], hosts.environ).end().returncode == 0
    try:
        yield Setting({"hosts": HOSTS}, cwd="/")
    finally:
        hosts.network[2].start(["sh", "-c", empty], hosts.environ, cwd="/").end()


MISTAKES = (
    Mistake(
        "host unknown",
        _unknown_host,
        ("nosuchhost cannot be used: its name has no address; check its spelling, /etc/hosts and DNS.",),
    ),
    Mistake(
        "wrong key",
        wrong_key,
        ("host2 cannot be used: it refuses this user's key; put the public key into",),
    ),
    Mistake(
        "no Python there",
        no_python,
        ("host2 cannot be used: there is no ", "/own/bin/python that can be executed there; "),
    ),
    Mistake(
        "no Horovod there",
        _no_horovod,
        (f"host2 cannot be used: {sys.executable} has no such Horovod there; install this version for it.",),
    ),
    Mistake(
        "another version there",
        other_version,
        ("host2 cannot be used: it has Horovod 0.99, this machine 1.",),
    ),
    Mistake(
        "nothing listens on the port",
        _nothing_listens,
        ("host2 cannot be used: nothing listens there on port 2222; is sshd running, on this port (-p PORT)?",),
    ),
    Mistake(
        "port blocked (--start-timeout 2)",
        blocked_port,
        ("host2 cannot be used: it ", "does a firewall let ssh through?"),
        3.5,
    ),
    Mistake(
        "link cut (--start-timeout 2)",
        _no_link,
        ("host2 cannot be used: it ", "does a firewall let ssh through?"),
        3.5,
    ),
    Mistake(
        "disk full there",
        _full_disk,
        ("host2 cannot be used: The job has no private directory for its ranks to meet in", "bytes are free"),
    ),
)
