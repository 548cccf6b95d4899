"""What the options for other hosts do, with a program called ssh that stays on this machine and writes down how it was
called."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from .conftest import Horovodrun

TELL = ["sh", "-c", "echo $HOROVOD_HOSTNAME $HOROVOD_LOCAL_RANK $HOROVOD_HIERARCHICAL_ALLGATHER"]


class Ssh:
    """The program, and what it was called with."""

    def __init__(self, place: Path) -> None:
        self._calls = place / "calls"
        self._program = place / "ssh"
        self._program.parent.mkdir()
        self.does('for last; do :; done; exec sh -c "$last"')

    def does(self, script: str) -> None:
        """What it does when it is called, after it has written that down."""
        self._program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(self._calls))}\n{script}\n')
        self._program.chmod(0o755)

    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def ssh(horovodrun: Horovodrun, tmp_path: Path) -> Ssh:
    made = Ssh(tmp_path / "bin")
    horovodrun.environ["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{horovodrun.environ['PATH']}"
    return made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-p 2222 -i {key}", "-p 2222 -i {key} -- far.invalid "),
        ("--ssh-port 2222 -I {key}", "-p 2222 -i {key} -- far.invalid "),
        ("--ssh-identity-file {key}", "-i {key} -- far.invalid "),
        ("--start-timeout 7", "ConnectTimeout=7 -- far.invalid "),
    ],
)
def test_port_key_and_patience_reach_ssh(
    horovodrun: Horovodrun, ssh: Ssh, tmp_path: Path, options: str, words: str
) -> None:
    key = tmp_path / "key"
    key.touch()
    done = horovodrun(f"-np 1 -H far.invalid:1 {options}".format(key=key), TELL)
    assert done.stdout == b"[0]<stdout>:far.invalid 0\n", done.stderr
    (call,) = ssh.calls()
    assert words.format(key=key) in call


@pytest.mark.parametrize("option", ["-H far.invalid:2", "--hosts far.invalid:2", "--hostfile {file}"])
def test_hosts_and_hostfile_name_the_same_hosts(horovodrun: Horovodrun, ssh: Ssh, tmp_path: Path, option: str) -> None:
    (tmp_path / "hosts").write_text("far.invalid slots=2  # the only one\n")
    done = horovodrun(f"-np 2 {option}".format(file=tmp_path / "hosts"), TELL)
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:far.invalid 0", b"[1]<stdout>:far.invalid 1"]
    assert len(ssh.calls()) == 1


def test_the_start_timeout_bounds_the_call_of_a_host(horovodrun: Horovodrun, ssh: Ssh) -> None:
    ssh.does("exec sleep 100")
    before = time.monotonic()
    done = horovodrun("-np 1 -H far.invalid:1 --start-timeout 1", TELL)
    assert done.returncode == 1
    assert done.stderr.startswith(
        b"horovodrun: far.invalid cannot be used: it has not answered within 1 s (--start-timeout)"
    )
    assert time.monotonic() - before < 20  # and not 30, as without it


def test_no_hierarchical_allgather_is_handed_on_without_a_remark(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 1 --no-hierarchical-allgather", TELL)
    assert (done.stdout, done.stderr) == (b"[0]<stdout>:localhost 0 0\n", b"")
    done = horovodrun("-np 1 --hierarchical-allgather", TELL)
    assert done.stdout == b"[0]<stdout>:localhost 0 1\n"
    assert b"--hierarchical-allgather has no effect on one host" in done.stderr
