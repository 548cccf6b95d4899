"""The board and the secret of a job that really runs on several hosts."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from horovod._net.handshake.frames import messages

from .conftest import Hosts, python

# What a rank does to use the board, with nothing but the standard library.
CLIENT = """
import os, socket, struct, sys, time
RANK = int(os.environ["HOROVOD_RANK"])
board = socket.socket(socket.AF_UNIX)
board.connect(os.environ["HOROVOD_RENDEZVOUS_DIR"] + "/board")
stream = board.makefile("rb")
def post(text):
    board.sendall(struct.pack(">4sBBHI", b"HVDN", VERSION, 11, 0, len(text)) + text.encode())
waiting = []
def hear():
    if waiting:
        return waiting.pop(0)
    magic, version, kind, zero, size = struct.unpack(">4sBBHI", stream.read(12))
    assert (magic, version, zero) == (b"HVDN", VERSION, 0)
    if kind == 8:  # Ready
        return hear()
    assert kind in (11, 14)  # Post, Posts
    waiting.extend(stream.read(size).decode().split("\\0"))
    return waiting.pop(0)
"""


def client(code: str) -> list[str]:
    return python(f"VERSION = {messages.VERSION}\n" + CLIENT + textwrap.dedent(code))


def test_all_ranks_hear_one_order_and_one_winner(hosts: Hosts) -> None:
    program = """
        for number in range(50):
            post(f"round{number}={RANK}")
        post(f"done.{RANK}=")
        heard = []
        while sum(text.startswith("done.") for text in heard) < 6:
            heard.append(hear())
        print(*[text for text in heard if text.startswith("round")])
    """
    ended = hosts("-np 6 -H host1:2,host2:2,host3:2", client(program))
    assert ended.code == 0, ended.err
    heard = {line.partition(":")[2] for line in ended.out}
    assert len(ended.out) == 6
    assert len(heard) == 1
    words = heard.pop().split()
    assert sorted(word.partition("=")[0] for word in words) == sorted(f"round{number}" for number in range(50))


def test_the_board_tells_how_ranks_end(hosts: Hosts) -> None:
    program = """
        if RANK == 1:
            os._exit(0)
        if RANK == 2:
            os.kill(os.getpid(), 9)
        heard = {hear() for _ in range(2)}
        print(sorted(heard), flush=True)
        time.sleep(10)
    """
    ended = hosts("-np 3 -H host1:1,host2:1,host3:1", client(program))
    assert ended.out == ["[0]<stdout>:['ended.1=exited with code 0', 'ended.2=was killed by signal 9']"]
    assert ended.code == 137


@pytest.mark.slow
def test_ranks_that_do_not_come_are_named(hosts: Hosts) -> None:
    late = "import os, time\nif os.environ['HOROVOD_RANK'] == '1': time.sleep(100)\n"
    ended = hosts("-np 3 -H host1:1,host2:2 --start-timeout 3", python(late + CLIENT + "time.sleep(100)"))
    assert ended.code == 1
    assert ended.err[-1].startswith("horovodrun: 2 of 3 ranks called hvd.init(), but rank 1 did not within 3 s.")


def test_the_secret_is_known_to_ranks_only(hosts: Hosts) -> None:
    program = """
        post(f"up.{RANK}=")
        heard = []
        while len(heard) < 4:
            heard.append(hear())
        print(os.environ["_HOROVOD_SECRET_KEY"], flush=True)
        time.sleep(100)
    """
    running = hosts.start("-np 4 -H host1:2,host2:2", client(program), environ={"PRECIOUS": "do not tell"})
    assert running.entered.stdout is not None
    secrets = {running.entered.stdout.readline().rpartition(b":")[2].strip() for _ in range(4)}
    assert len(secrets) == 1
    secret = secrets.pop()
    seen = {}
    for host in hosts.network.hosts:
        for pid in host.processes():
            words, variables = (Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            assert secret not in words
            assert b"do not tell" not in words
            # The launcher was given PRECIOUS; ssh and the agent of the other host were not.
            seen[host.name, pid] = (secret in variables, b"HOROVOD_RANK=" in variables)
    running.signal(15)
    assert hosts.end(running).code == 143
    assert sum(ranks for _, ranks in seen.values()) == 4
    assert all(knows == is_rank for knows, is_rank in seen.values())
    for host in hosts.network.hosts:
        assert secret not in host.log.read_bytes()


def test_nothing_listens_to_the_network_for_the_launcher(hosts: Hosts) -> None:
    program = """
        import json
        lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}")]
        print(json.dumps(sorted({int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == "0A"})))
    """
    ended = hosts("-np 2 -H host1:1,host2:1", client(program))
    assert [json.loads(line.partition(":")[2]) for line in sorted(ended.out)] == [[22], [22]]
