"""What strangers on the network can do to a job that really runs on several hosts: scan it, crowd its doors, change
what travels.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from .conftest import Hosts

pytestmark = pytest.mark.slow

# All ports of a host, by plain connections; says which ones took it.
SCAN = """
    import json, socket, sys
    found = []
    for port in range(1, 65536):
        with socket.socket() as sock:
            sock.settimeout(1.0)
            if sock.connect_ex((sys.argv[1], port)) == 0:
                found.append(port)
    print(json.dumps(found))
"""
# Many connections that say nothing, or begin to; they end with stdin.
CROWD = """
    import socket, sys
    held = []
    for place in sys.argv[1:]:
        address, port = place.split(":")
        for number in range(300):
            held.append(socket.create_connection((address, int(port)), timeout=10))
            if number % 2:
                held[-1].sendall(b"HVDN" + bytes([1]))
    print("here", flush=True)
    sys.stdin.read()
"""
TRAIN = """
    import os, sys, numpy as np, horovod.numpy as hvd
    hvd.init()
    print("ready", flush=True)
    over = 0.0
    while not over:
        over = hvd.allreduce(np.full(200_000, float(os.path.exists(sys.argv[1]))), name="w", op=hvd.Sum)[0]
"""
LATE = """
    import os, sys, time
    while os.environ["HOROVOD_RANK"] == "2" and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    import numpy as np, horovod.numpy as hvd
    hvd.init()
    print(hvd.allreduce(np.ones(4), op=hvd.Sum)[0])
"""
OBJECT = """
    import horovod.numpy as hvd
    hvd.init()
    try:
        print("got", hvd.broadcast_object(b"what-was-sent" * 100_000 if hvd.rank() == 0 else None, 0)[:13])
    except hvd.HorovodInternalError as error:
        print("refused:", error)
"""


def python(code: str, *words: object) -> list[str]:
    """Not isolated: Horovod and NumPy are to be found."""
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, words)]


def test_a_port_scan_during_training_finds_ssh_alone(hosts: Hosts, tmp_path: Path) -> None:
    over = tmp_path / "over"
    running = hosts.start("-np 3 -H host1:1,host2:1,host3:1", python(TRAIN, over))
    assert running.entered.stdout is not None
    for _ in range(3):
        assert b"ready" in running.entered.stdout.readline()
    found = hosts.network[3].start(python(SCAN, hosts.network[2].address), hosts.environ).end()
    over.touch()
    ended = hosts.end(running)
    assert json.loads(found.stdout) == [22], found.stderr
    assert (ended.code, ended.troubles) == (0, [])


def test_a_crowd_at_the_doors_costs_no_rank_its_place(hosts: Hosts, tmp_path: Path) -> None:
    """While ranks 0 and 1 wait for rank 2, a crowd comes first."""
    crowded = tmp_path / "crowded"
    running = hosts.start("-np 3 -H host1:1,host2:1,host3:1", python(LATE, crowded))
    doors = []
    deadline = time.monotonic() + 30.0
    for host in hosts.network.hosts[:2]:
        while not (listening := [name for name in host.sockets() if name.startswith("tcp ")]):
            assert time.monotonic() < deadline and running.entered.poll() is None
            time.sleep(0.01)
        assert len(listening) == 1
        own = bytes(map(int, reversed(host.address.split("."))))
        assert listening[0].startswith(f"tcp {own.hex().upper()}:"), "its own address, and never all of them"
        doors.append(f"{host.address}:{int(listening[0][-4:], 16)}")
    crowd = hosts.network[3].start(python(CROWD, *doors), hosts.environ, stdin=subprocess.PIPE)
    assert crowd.entered.stdin is not None and crowd.entered.stdout is not None
    assert crowd.entered.stdout.readline() == b"here\n"
    crowded.touch()
    done = running.end()
    crowd.entered.stdin.close()
    crowd.entered.wait(10.0)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == [b"[%d]<stdout>:3.0" % rank for rank in range(3)]
    assert len(done.stderr.splitlines()) <= 3 * 5, "a crowd does not fill the log"


def test_what_is_changed_on_its_way_is_not_unpickled(hosts: Hosts) -> None:
    command = python(OBJECT)
    assert sorted(hosts("-np 2 -H host1:1,host2:1", command).out) == [
        "[0]<stdout>:got b'what-was-sent'",
        "[1]<stdout>:got b'what-was-sent'",
    ]
    hosts.network.wire(hosts.network[2], change=("what-was-sent", "what-is-wrong"))
    try:
        changed = hosts("-np 2 -H host1:1,host2:1", command)
    finally:
        hosts.network.unwire(hosts.network[2])
    told = [line for line in changed.out if "refused:" in line]
    assert told and "They were not unpickled" in told[0], changed
    assert not any("wrong" in line for line in changed.out)
