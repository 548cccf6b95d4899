"""What can be wrong with a host: each mistake is one clear line, soon, before anything runs anywhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, Hosts, python

pytestmark = pytest.mark.slow

QUIET = python("print('ran')")


def refused(hosts: Hosts, options: str, within_s: float = 5.0, command: list[str] = QUIET, **more: object) -> str:
    """The message of a job that must not start."""
    ended = hosts(options, command, **more)
    assert ended.code == 1
    assert ended.out == []
    assert ended.seconds < within_s
    return "\n".join(ended.err)


def test_an_unknown_host(hosts: Hosts) -> None:
    assert refused(hosts, "-np 2 -H host1:1,nosuchhost:1") == (
        "horovodrun: nosuchhost cannot be used: its name has no address; check its spelling, /etc/hosts and DNS."
    )


def test_nothing_listens(hosts: Hosts) -> None:
    assert refused(hosts, "-np 2 -H host1:1,host2:1 -p 2222") == (
        "horovodrun: host2 cannot be used: nothing listens there on port 2222; is sshd running, on this port (-p PORT)?"
    )


@pytest.mark.parametrize("cut", [True, False])
def test_no_answer_within_the_start_timeout(hosts: Hosts, cut: bool) -> None:
    network, host = hosts.network, hosts.network[2]
    route = ("route", "add", "blackhole", hosts.network[1].address)
    network.cut(host) if cut else host.enter("ip", *route)
    try:
        message = refused(hosts, "-np 2 -H host1:1,host2:1 --start-timeout 2", within_s=3.5)
    finally:
        network.join(host) if cut else host.enter("ip", "route", "del", "blackhole", hosts.network[1].address)
    message = message.splitlines()[-1]
    assert message.startswith("horovodrun: host2 cannot be used: it ")
    assert "does a firewall let ssh through?" in message


def test_the_wrong_key(hosts: Hosts) -> None:
    _without_key(hosts)
    try:
        message = refused(hosts, "-np 2 -H host1:1,host2:1 -I /run/hosts/otherkey")
        right = hosts("-np 2 -H host1:1,host2:1 -i /run/hosts/key.hidden", QUIET)
    finally:
        os.rename(hosts.network.place / "key.hidden", hosts.network.place / "key")
    assert message.startswith("horovodrun: host2 cannot be used: it refuses this user's key; put the public key into")
    assert right.code == 0


def _without_key(hosts: Hosts) -> None:
    os.rename(hosts.network.place / "key", hosts.network.place / "key.hidden")


@pytest.fixture
def known_hosts(hosts: Hosts) -> Iterator[Path]:
    """The file, put back afterwards."""
    path = hosts.network.place / "known_hosts"
    before = path.read_text()
    yield path
    path.write_text(before)


def test_an_unknown_host_key(hosts: Hosts, known_hosts: Path) -> None:
    known_hosts.write_text("")
    assert "this machine does not know its host key; connect once by hand (ssh host2)" in refused(
        hosts, "-np 2 -H host1:1,host2:1"
    )
    assert known_hosts.read_text() == ""


def test_a_changed_host_key(hosts: Hosts, known_hosts: Path) -> None:
    other = (hosts.network.place / "otherkey.pub").read_text()
    known_hosts.write_text(f"host2,10.77.0.12 {other}")
    message = refused(hosts, "-np 2 -H host1:1,host2:1")
    assert "its host key is not the one that this machine knows" in message
    assert "ssh-keygen -R host2" in message


def test_no_such_python_there(hosts: Hosts) -> None:
    place = "/dev/shm/own"  # of the first host alone
    make = [sys.executable, "-m", "venv", "--without-pip", place]
    assert hosts.network[1].start(make, hosts.environ).end().returncode == 0
    try:
        done = hosts.start("-np 2 -H host1:1,host2:1", ["true"], executable=f"{place}/bin/python").end(10.0)
    finally:
        hosts.network[1].start(["rm", "-r", place], hosts.environ).end()
    assert done.returncode == 1
    assert f"host2 cannot be used: there is no {place}/bin/python that can be executed there; " in done.stderr.decode()


def test_horovod_is_missing_there(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()  # not just an empty folder, behind which another installation would show
    _over(hosts, 2, ROOT / "python" / "horovod", tmp_path)
    try:
        message = refused(hosts, "-np 2 -H host1:1,host2:1")
    finally:
        _uncovered(hosts, 2, ROOT / "python" / "horovod")
    assert message == (
        f"horovodrun: host2 cannot be used: {sys.executable} has no such Horovod there; install this version for it."
    )


def test_another_version_is_there(hosts: Hosts, tmp_path: Path) -> None:
    copy = tmp_path / "horovod"
    shutil.copytree(ROOT / "python" / "horovod", copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = (copy / "__init__.py").read_text()
    version = next(line for line in text.splitlines() if line.startswith("__version__"))
    (copy / "__init__.py").write_text(text.replace(version, '__version__ = "0.99"'))
    _over(hosts, 2, ROOT / "python" / "horovod", copy)
    try:
        message = refused(hosts, "-np 2 -H host1:1,host2:1")
    finally:
        _uncovered(hosts, 2, ROOT / "python" / "horovod")
    assert "host2 cannot be used: it has Horovod 0.99, this machine 1." in message


def _over(hosts: Hosts, number: int, place: Path, source: Path) -> None:
    """On this host, another folder stands at this place."""
    done = hosts.network[number].start(["mount", "--bind", str(source), str(place)], hosts.environ).end()
    assert done.returncode == 0, done.stderr


def _uncovered(hosts: Hosts, number: int, place: Path) -> None:
    assert hosts.network[number].start(["umount", str(place)], hosts.environ).end().returncode == 0


def test_the_working_directory_is_missing_there(hosts: Hosts) -> None:
    # Seen by the first host alone: /dev/shm is each host's own.
    assert hosts.network[1].start(["mkdir", "/dev/shm/here"], hosts.environ).end().returncode == 0
    try:
        running = hosts.start("-np 2 -H host1:1,host2:1", ["true"], cwd="/dev/shm/here")
        done = running.end(10.0)
    finally:
        hosts.network[1].start(["rmdir", "/dev/shm/here"], hosts.environ).end()
    assert done.returncode == 1
    assert b"host2 cannot be used: The working directory /dev/shm/here does not exist there. Make it" in done.stderr


def test_the_program_is_missing_there(hosts: Hosts) -> None:
    made = hosts.network[1].start(["ln", "-s", "/bin/true", "/dev/shm/program"], hosts.environ).end()
    assert made.returncode == 0
    try:
        done = hosts.start("-np 2 -H host1:1,host2:1", ["/dev/shm/program"]).end(10.0)
    finally:
        hosts.network[1].start(["rm", "/dev/shm/program"], hosts.environ).end()
    assert done.returncode == 1
    assert b"host2 cannot be used: The command '/dev/shm/program' is not found." in done.stderr


def test_the_disk_is_full_there(hosts: Hosts) -> None:
    fill = (
        "mount -t tmpfs -o size=4k tmpfs /tmp; mount -o remount,size=4k /dev/shm; mount -t tmpfs -o size=4k t /var/tmp"
    )
    assert hosts.network[3].start(["sh", "-c", fill], hosts.environ).end().returncode == 0
    try:
        message = refused(hosts, "-np 2 -H host1:1,host3:1", cwd="/")
    finally:
        empty = "umount /tmp; umount /var/tmp; mount -o remount,size=512m /dev/shm"
        hosts.network[3].start(["sh", "-c", empty], hosts.environ, cwd="/").end()
    assert "host3 cannot be used: The job has no private directory for its ranks to meet in" in message
    assert "bytes are free" in message


def test_no_such_interface_there(hosts: Hosts) -> None:
    assert refused(hosts, "-np 2 -H host1:1,host2:1 --network-interface eth7").splitlines() == [
        "horovodrun: 2 of 2 hosts cannot be used:",
        *(f"  host{n}: --network-interface eth7: it has no such network interface; it has lo, eth0." for n in (1, 2)),
    ]
    assert hosts("-np 2 -H host1:1,host2:1 --network-interface eth7,eth0", QUIET).code == 0


def test_two_names_of_one_machine(hosts: Hosts) -> None:
    assert refused(hosts, "-np 2 -H host2:1,10.77.0.12:1") == (
        "horovodrun: host2 and 10.77.0.12 are the same machine; give it one name, with all slots."
    )


def test_all_hosts_are_told_at_once(hosts: Hosts) -> None:
    message = refused(hosts, "-np 3 -H nosuch1:1,host2:1,nosuch2:1").splitlines()
    assert message[0] == "horovodrun: 2 of 3 hosts cannot be used:"
    assert [line.split(":")[0] for line in message[1:]] == ["  nosuch1", "  nosuch2"]


def test_no_ssh_here(hosts: Hosts) -> None:
    ended = hosts("-np 1 -H host2:1", QUIET, environ={"PATH": "/nowhere"})
    assert ended.code == 2
    assert ended.err[-1].endswith(
        "over ssh: there is no program 'ssh' here to reach other hosts with; install OpenSSH's client."
    )


def test_a_key_that_is_not_there(hosts: Hosts) -> None:
    ended = hosts("-np 1 -H host2:1 -i /nowhere/key", QUIET)
    assert ended.code == 2
    assert ended.err == ["horovodrun: error: --ssh-identity-file /nowhere/key does not exist."]


def test_what_a_login_shell_prints_does_not_matter(hosts: Hosts, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text(
        '#!/bin/sh\nhost=$1; shift\necho "Welcome to $host!"; echo Mail >&2\nexec ssh "$host" "echo hello; $*"\n'
    )
    noisy.chmod(0o755)
    ended = hosts("-np 2 -H host2:1,host3:1", QUIET, environ={"OMPI_MCA_plm_rsh_agent": str(noisy)})
    assert sorted(ended.out) == ["[0]<stdout>:ran", "[1]<stdout>:ran"]


def test_a_program_in_ssh_s_place_that_keeps_standard_input(hosts: Hosts, tmp_path: Path) -> None:
    keeper = tmp_path / "keeper"
    keeper.write_text('#!/bin/sh\nhost=$1; shift\nexec ssh -n "$host" "$*"\n')
    keeper.chmod(0o755)
    message = refused(hosts, "-np 2 -H host1:1,host2:1", environ={"OMPI_MCA_plm_rsh_agent": str(keeper)})
    assert "host2 cannot be used: " in message
    assert "standard input" in message
