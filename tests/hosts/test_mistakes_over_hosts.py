"""What can be wrong with a host: each mistake is one clear line, soon, before anything runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Ended, Hosts, python
from .mistakes import MISTAKES, QUIET, RUN, Mistake, Start

pytestmark = pytest.mark.slow

PRINT = python("print('ran')")


def refused(hosts: Hosts, options: str, within_s: float = 5.0, **more: object) -> str:
    """The message of a job that must not start."""
    return told(hosts(options, PRINT, **more), within_s)


def told(ended: Ended, within_s: float) -> str:
    """The message of a job that did not start, without the line of a start that takes more than 2 s."""
    assert (ended.code, ended.out) == (1, [])
    assert ended.seconds < within_s
    return "\n".join(ended.troubles)


@pytest.mark.parametrize("start", [QUIET, RUN], ids=lambda start: start.name)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_reported_before_anything_runs(
    hosts: Hosts, mistake: Mistake, start: Start, tmp_path: Path
) -> None:
    with mistake.made(hosts, tmp_path) as setting:
        ended = start(hosts, setting)
    message = told(ended, mistake.within_s)
    assert all(part in message for part in mistake.said), message


def test_the_right_key_will_do(hosts: Hosts) -> None:
    key = hosts.network.place / "key"
    key.rename(key.with_suffix(".hidden"))
    try:
        assert hosts("-np 2 -H host1:1,host2:1 -i /run/hosts/key.hidden", PRINT).code == 0
    finally:
        key.with_suffix(".hidden").rename(key)


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


def test_no_such_interface_there(hosts: Hosts) -> None:
    assert refused(hosts, "-np 2 -H host1:1,host2:1 --network-interface eth7").splitlines() == [
        "horovodrun: 2 of 2 hosts cannot be used:",
        *(f"  host{n}: --network-interface eth7: it has no such network interface; it has lo, eth0." for n in (1, 2)),
    ]
    assert hosts("-np 2 -H host1:1,host2:1 --network-interface eth7,eth0", PRINT).code == 0


def test_two_names_of_one_machine(hosts: Hosts) -> None:
    assert refused(hosts, "-np 2 -H host2:1,10.77.0.12:1") == (
        "horovodrun: host2 and 10.77.0.12 are the same machine; give it one name, with all slots."
    )


def test_all_hosts_are_reported_at_once(hosts: Hosts) -> None:
    message = refused(hosts, "-np 3 -H nosuch1:1,host2:1,nosuch2:1").splitlines()
    assert message[0] == "horovodrun: 2 of 3 hosts cannot be used:"
    assert [line.split(":")[0] for line in message[1:]] == ["  nosuch1", "  nosuch2"]


def test_no_ssh_here(hosts: Hosts) -> None:
    ended = hosts("-np 1 -H host2:1", PRINT, environ={"PATH": "/nowhere"})
    assert ended.code == 2
    assert ended.err[-1].endswith(
        "Over ssh: host2 is not this machine, and there is no program 'ssh' here to reach other hosts with; install "
        "OpenSSH's client (the package openssh-client or openssh-clients)."
    )


def test_a_key_that_is_not_there(hosts: Hosts) -> None:
    ended = hosts("-np 1 -H host2:1 -i /nowhere/key", PRINT)
    assert ended.code == 2
    assert ended.err == ["horovodrun: error: --ssh-identity-file /nowhere/key does not exist."]


def test_what_a_login_shell_prints_does_not_matter(hosts: Hosts, tmp_path: Path) -> None:
    noisy = tmp_path / "noisy"
    noisy.write_text(
        '#!/bin/sh\nhost=$1; shift\necho "Welcome to $host!"; echo Mail >&2\nexec ssh "$host" "echo hello; $*"\n'
    )
    noisy.chmod(0o755)
    ended = hosts("-np 2 -H host2:1,host3:1", PRINT, environ={"OMPI_MCA_plm_rsh_agent": str(noisy)})
    assert sorted(ended.out) == ["[0]<stdout>:ran", "[1]<stdout>:ran"]


def test_a_program_in_ssh_s_place_that_keeps_standard_input(hosts: Hosts, tmp_path: Path) -> None:
    keeper = tmp_path / "keeper"
    keeper.write_text('#!/bin/sh\nhost=$1; shift\nexec ssh -n "$host" "$*"\n')
    keeper.chmod(0o755)
    message = refused(hosts, "-np 2 -H host1:1,host2:1", environ={"OMPI_MCA_plm_rsh_agent": str(keeper)})
    assert "host2 cannot be used: " in message
    assert "standard input" in message
