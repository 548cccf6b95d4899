"""The pure parts of a start over ssh: words, variables, addresses, and what is made of an error."""

from __future__ import annotations

import os
import shlex
from types import SimpleNamespace

import pytest

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.runner.job import effective_settings, make_job
from horovod.runner.launchers import agents
from horovod.runner.launchers.choose import choose
from horovod.runner.machines import addresses, host_variables, this_host
from horovod.runner.machines.hosts import Host, assign
from horovod.runner.remote.ways import diagnosis, host_keys, ssh_command


def test_ssh_asks_nothing_and_gets_port_and_key() -> None:
    words = ssh_command.shell({}, 2222, "/home/me/key file", 12.7, 5.0).command("host2", "the line")
    assert words[0] == "ssh"
    assert words[-3:] == ["--", "host2", "the line"]
    assert " ".join(words).count("-o BatchMode=yes") == 1
    assert "-o ConnectTimeout=12 -p 2222 -i /home/me/key file" in " ".join(words)
    assert not any("StrictHostKeyChecking" in word or "KnownHosts" in word for word in words)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/etc/mpi/kubexec.sh", ["/etc/mpi/kubexec.sh", "pod-1", "line"]),
        ("rsh -n : ssh", ["rsh", "-n", "pod-1", "line"]),
    ],
)
def test_another_program_takes_ssh_s_place(value: str, words: list[str]) -> None:
    assert ssh_command.shell({ssh_command.RSH_AGENT: value}, 22, None, 30.0, 5.0).command("pod-1", "line") == words


@pytest.mark.parametrize("value", ["", "ssh : rsh", "/usr/bin/ssh"])
def test_ssh_by_another_name_gets_its_options(value: str) -> None:
    shell = ssh_command.shell({ssh_command.RSH_AGENT: value}, None, None, 30.0, 5.0)
    assert shell.is_ssh and "BatchMode=yes" in shell.words


def test_ssh_gets_the_options_of_the_mpi_operator() -> None:
    environ = {ssh_command.RSH_ARGS: "-o ConnectionAttempts=10"}
    words = ssh_command.shell(environ, None, None, 30.0, 5.0).command("pod-1", "line")
    assert "-o ConnectionAttempts=10 -- pod-1 line" in " ".join(words)
    assert "ConnectionAttempts" not in " ".join(
        ssh_command.shell({**environ, ssh_command.RSH_AGENT: "rsh"}, None, None, 30.0, 5.0).words
    )


@pytest.mark.parametrize("name", [ssh_command.RSH_AGENT, ssh_command.RSH_ARGS])
def test_a_quotation_that_does_not_end_is_a_clear_error(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} cannot be split into words: No closing quotation"):
        ssh_command.shell({name: "ssh 'x"}, None, None, 30.0, 5.0)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("-o StrictHostKeyChecking=no", ["StrictHostKeyChecking=no"]),
        ("-q -oStrictHostKeyChecking=accept-new -p 22", ["StrictHostKeyChecking=accept-new"]),
        ("-o 'stricthostkeychecking OFF'", ["StrictHostKeyChecking=OFF"]),
        (
            "-o UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no",
            ["UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no"],
        ),
        ("sshpass -e ssh -o StrictHostKeyChecking=false", ["StrictHostKeyChecking=false"]),
        ("-o NoHostAuthenticationForLocalhost=yes", ["NoHostAuthenticationForLocalhost=yes"]),
        ("-o StrictHostKeyChecking=yes -o StrictHostKeyChecking=no", []),  # ssh takes the first
        ("-o UserKnownHostsFile=/home/me/hosts -o ConnectionAttempts=10 -o CheckHostIP=no", []),
        ("", []),
    ],
)
def test_options_by_which_ssh_takes_any_host_s_word(words: str, found: list[str]) -> None:
    assert host_keys.relaxed(words) == found


@pytest.mark.parametrize("name", [ssh_command.RSH_AGENT, ssh_command.RSH_ARGS])
def test_a_relaxed_check_of_host_keys_is_warned_of(name: str, caplog: pytest.LogCaptureFixture) -> None:
    program = {
        ssh_command.RSH_AGENT: "ssh -o StrictHostKeyChecking=no",
        ssh_command.RSH_ARGS: "-oStrictHostKeyChecking=no",
    }
    environ = {"PATH": os.environ["PATH"], name: program[name]}
    if ssh_command.missing(environ):
        pytest.skip("there is no ssh")
    effective = effective_settings({"num_proc": 2, "hosts": "host1:1,host2:1"}, "flag", environ)
    choose(make_job(effective, ["true"], environ, "/"))
    (warning,) = (record.message for record in caplog.records if "known_hosts" in record.message)
    assert warning.startswith(f"{name} has StrictHostKeyChecking=no: with that ssh does not check")


@pytest.mark.parametrize(("patience_s", "told"), [(0.2, "1"), (30.9, "30"), (1e308, "86400")])
def test_ssh_is_patient_for_a_time_that_it_knows(patience_s: float, told: str) -> None:
    assert f"ConnectTimeout={told}" in ssh_command.shell({}, None, None, patience_s, 5.0).words


def test_the_line_for_the_shell_there_keeps_odd_folders_whole() -> None:
    line = ssh_command.remote_agent("/opt/my python/bin/python", ["/a b", "/c'd"], 4.5)
    assert shlex.split(line)[:6] == ["cd", "/", "&&", "exec", "env", "PYTHONPATH=/a b:/c'd"]
    assert shlex.split(line)[6:] == ["/opt/my python/bin/python", "-m", "horovod.runner.remote.agent", "4.5"]


def test_a_missing_program_is_named() -> None:
    assert ssh_command.missing({"PATH": "/nowhere"}) == "ssh"
    assert ssh_command.missing({"PATH": "/nowhere", ssh_command.RSH_AGENT: "/bin/sh -x"}) == ""


def test_what_belongs_to_a_host_stays_there() -> None:
    given = {"PATH": "/p", "SSH_AUTH_SOCK": "/s", "DISPLAY": ":0", "CUDA_VISIBLE_DEVICES": "0", "XDG_RUNTIME_DIR": "/r"}
    own = {"PATH": "/q", "SSH_CONNECTION": "c", "HOME": "/h", "OTHER": "x"}
    travelling = host_variables.travelling(given)
    assert travelling == {"PATH": "/p"}
    assert host_variables.joined(own, travelling) == {"PATH": "/p", "SSH_CONNECTION": "c", "HOME": "/h"}


@pytest.mark.parametrize(
    ("connection", "client", "server"),
    [
        ("10.0.0.1 40000 10.0.0.2 22", "10.0.0.1", "10.0.0.2"),
        ("fe80::1%eth0 40000 fe80::2%eth0 22", "fe80::1%eth0", "fe80::2%eth0"),
        ("::ffff:10.0.0.1 1 ::ffff:10.0.0.2 22", "10.0.0.1", "10.0.0.2"),
        ("UNKNOWN 65535 UNKNOWN 65535", "", ""),
        ("", "", ""),
        ("a b", "", ""),
    ],
)
def test_addresses_of_a_connection(connection: str, client: str, server: str) -> None:
    assert (addresses.of_client(connection), addresses.of_server(connection)) == (client, server)


def test_own_addresses() -> None:
    assert addresses.is_own("127.0.0.1")
    assert not addresses.is_own("192.0.2.1")
    assert not addresses.is_own("")
    assert addresses.towards("127.0.0.1") == "127.0.0.1"
    assert addresses.of_name("no-such-host.invalid") == ""


@pytest.mark.parametrize(
    ("seen", "address"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("127.0.0.1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_peer_is_one_for_other_hosts(seen: str, address: str) -> None:
    assert addresses.of_peer(SimpleNamespace(getpeername=lambda: (seen, 4711))) == address  # type: ignore[arg-type]


class SeenFrom:
    """As much of a link as `addresses_of` asks."""

    hello: dict[str, str] = {"ssh": "", "own": ""}
    way = SimpleNamespace(host="localhost")

    def __init__(self, peer: str) -> None:
        self.peer = peer


@pytest.mark.parametrize(("peer", "address"), [("10.0.0.7", "10.0.0.7"), ("", addresses.of_name("localhost"))])
def test_an_agent_that_has_called_is_reached_where_it_was_seen(peer: str, address: str) -> None:
    assert list(agents.addresses_of([SeenFrom(peer)]).values()) == [address]  # type: ignore[list-item]


def why(code: int | None, said: str) -> str:
    return diagnosis.Facts("a", "/p/python", 2222, code, said, 9.0).why()


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (255, "ssh: Could not resolve hostname a: Name or service not known", "its name has no address"),
        (255, "ssh: connect to host a port 2222: Connection refused", "nothing listens there on port 2222"),
        (255, "ssh: connect to host a port 2222: Connection timed out", "it does not answer on port 2222"),
        (255, "ssh: connect to host a port 22: No route to host", "it does not answer on port 2222"),
        (255, "me@a: Permission denied (publickey).", "it refuses this user's key"),
        (255, "Host key verification failed.", "this machine does not know its host key"),
        (255, "@ REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "is not the one that"),
        (127, "sh: 1: exec: /p/python: not found", "there is no /p/python that can be executed there"),
        (126, "Permission to run is missing", "there is no /p/python that can be executed there"),
        (1, "/p/python: No module named horovod.runner.remote", "/p/python has no such Horovod there"),
        (1, "ModuleNotFoundError: No module named 'horovod'", "/p/python has no such Horovod there"),
        (3, "first\nlast\n", "ended with code 3: last"),
        (3, "", "ended with code 3"),
        (None, "", "it has not answered within 9 s (--start-timeout)"),
    ],
)
def test_what_an_error_means(code: int | None, said: str, words: str) -> None:
    assert words in why(code, said)


@pytest.mark.parametrize(
    ("code", "said", "may_come"),
    [
        (None, "", True),
        (255, "ssh: connect to host a port 22: Connection refused", True),
        (255, "ssh: connect to host a port 22: Connection timed out", True),
        (255, "ssh: connect to host a port 22: No route to host", True),
        (255, "me@a: Permission denied (publickey).", False),
        (255, "ssh: Could not resolve hostname a: Name or service not known", False),
        (127, "sh: 1: exec: /p/python: not found", False),
    ],
)
def test_a_host_that_has_not_answered_may_come(code: int | None, said: str, may_come: bool) -> None:
    assert diagnosis.Facts("a", "/p/python", 22, code, said, 9.0).may_come == may_come


def test_failures_are_one_line_each() -> None:
    assert diagnosis.table({"a": "it is away"}, 3) == "a cannot be used: it is away."
    assert diagnosis.table({"a": "away", "b": "is it up?"}, 3) == (
        "2 of 3 hosts cannot be used:\n  a: away.\n  b: is it up?"
    )


def test_a_rank_is_said_to_be_on_its_host_where_there_are_several() -> None:
    for hosts, words in (("a:1,b:1", " on b"), ("a:2", "")):
        job = make_job(effective_settings({"num_proc": 2, "hosts": hosts}, "argument", {}), ["true"], {}, "/")
        assert job.on_host(1) == words


def test_names_of_this_machine_become_one_host() -> None:
    slots = tuple(assign([Host("localhost", 1), Host("elsewhere.invalid", 2), Host("127.0.0.1", 2)], 5))
    found = this_host.with_one_name_here(slots)
    assert [slot.hostname for slot in found] == ["localhost"] * 3 + ["elsewhere.invalid"] * 2
    assert [slot.local_size for slot in found] == [3, 3, 3, 2, 2]


def test_each_launcher_has_its_reason() -> None:
    settings = effective_settings({"num_proc": 1, "hosts": "elsewhere.invalid"}, "argument", {})
    with pytest.raises(UnsupportedError) as caught:
        choose(make_job(settings, ["true"], {"PATH": "/nowhere"}, "/"))
    assert "started. On this machine: elsewhere.invalid is not this machine (" in str(caught.value)
    assert "Over ssh: elsewhere.invalid is not this machine, and there is no program 'ssh' here" in str(caught.value)
    assert "install OpenSSH's client (the package openssh-client" in str(caught.value)
