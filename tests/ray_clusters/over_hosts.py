"""`horovod.ray` on three hosts, each with a node of two CPUs by `ray start`: `make test-ray`. See `nodes_on_hosts`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from hosts.network import Host, Network
from nodes_on_hosts import Program, environ, is_ours, network, run, start_node
from programs import has_secret

from horovod._net.clusters.addresses import MEETING_PORTS

__all__ = ["network", "run"]  # fixtures

_STATIC = """
for sizes in ({"num_workers": 4}, {"num_hosts": 3}):
    start_s = time.monotonic()
    executor = RayExecutor(settings, **sizes)
    executor.start()
    started_s = time.monotonic() - start_s
    say("ranks", executor.run(programs.placed))
    executor.shutdown()
    print(f"{sizes}: start {started_s:.1f} s, with run {time.monotonic() - start_s:.1f} s", file=sys.stderr)
"""


def test_packed_and_spread(run: Callable[..., Program]) -> None:
    program = run(_STATIC)
    packed, spread = program.heard("ranks"), program.heard("ranks")
    print(program.end())
    assert [each[0] for each in packed] == [(0, 4, 0, 2, 2), (1, 4, 1, 2, 2), (2, 4, 0, 2, 2), (3, 4, 1, 2, 2)]
    assert [each[0] for each in spread] == [(rank, 3, 0, 1, 3) for rank in range(3)]
    assert {each[1] for each in packed} == {10.0} and {each[1] for each in spread} == {6.0}
    hosts = [each[4] for each in packed]
    assert hosts[0] == hosts[1] != hosts[2] == hosts[3]
    assert sorted(each[4] for each in spread) == ["host1", "host2", "host3"]


_TRAIN = """
import tempfile
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from horovod.ray import HorovodConfig

def fit(config):
    numbers, total, *_ = programs.placed()
    is_first = numbers[0] == 0
    with tempfile.TemporaryDirectory() as place:
        checkpoint = train.Checkpoint.from_directory(place) if is_first else None
        train.report({"numbers": numbers, "total": total}, checkpoint=checkpoint)

start_s = time.monotonic()
trainer = DataParallelTrainer(
    fit,
    train_loop_config={},
    backend_config=HorovodConfig(),
    scaling_config=train.ScalingConfig(num_workers=3, placement_strategy="STRICT_SPREAD"),
    run_config=train.RunConfig(storage_path=sys.argv[1]),
)
say("metrics", trainer.fit().metrics)
print(f"Ray Train: {time.monotonic() - start_s:.1f} s", file=sys.stderr)
"""


def test_workers_of_ray_train(run: Callable[..., Program], tmp_path: Path) -> None:
    program = run(_TRAIN, tmp_path)
    metrics = program.heard("metrics")
    print(program.end()[-500:])
    assert tuple(metrics["numbers"]) == (0, 3, 0, 1, 3) and metrics["total"] == 6.0


_WAITS = """
executor = RayExecutor(settings, **eval(sys.argv[1]))
executor.start()
say("found", executor.run(programs.waits_for, sys.argv[2:4], callbacks=[lambda logged: say("ready", logged)]))
executor.shutdown()
"""
# Garbage, and the words of a rank with another secret: all that comes back, in bytes, and how it ends.
_STRANGER = r"""
import contextlib, os, socket, sys, time
from horovod._net.failures import NetError
from horovod._net.handshake.boards.board_call import call
from horovod._net.handshake.boards.kept_board import credentials_of
address, port = sys.argv[1], int(sys.argv[2])
for said in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(1 << 16), b""):
    got = 0
    with socket.create_connection((address, port), timeout=10) as sock, contextlib.suppress(OSError):
        sock.sendall(said)
        sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(4096):
            got += len(part)
    print("got", got)
try:
    call(credentials_of(os.urandom(32), "Ray x", 1, 2), address, port, time.monotonic() + 5.0, patient=False, remedy="")
    print("let in")
except NetError as error:
    print("refused", type(error).__name__)
"""


def listening(pid: int) -> set[str]:
    """Where a process listens by TCP, in the kernel's words."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            own.add(os.readlink(each))
    tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    return {each[1] for each in lines if each[3] == "0A" and f"socket:[{each[9]}]" in own}


def actors(network: Network) -> dict[int, Host]:
    """Of programs: those of ranks, and of their callbacks' queue."""
    return {pid: host for host in network.hosts for pid, line in host.processes().items() if is_ours(line)}


def door(network: Network) -> tuple[Host, int]:
    """The one that is open while ranks are awaited."""
    deadline_s = time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        found = [(host, each) for pid, host in actors(network).items() for each in listening(pid)]
        doors = [(host, each, int(each[-4:], 16)) for host, each in found if int(each[-4:], 16) in MEETING_PORTS]
        if doors:
            ((host, words, port),) = doors
            own = bytes(map(int, reversed(host.address.split(".")))).hex().upper()
            assert words.startswith(f"{own}:"), "its own address, and never all of them"
            return host, port
        time.sleep(0.05)
    raise AssertionError("no door")


@pytest.mark.parametrize("sizes", [{"num_hosts": 2}, {"min_workers": 2}], ids=["static", "elastic"])
def test_what_strangers_find(
    network: Network, run: Callable[..., Program], tmp_path: Path, sizes: dict[str, int]
) -> None:
    over, late = tmp_path / "over", tmp_path / "late"
    program = run(_WAITS, sizes, over, late)
    if "num_hosts" in sizes:  # in an elastic job all ranks come at once
        host, port = door(network)
        stranger = network[1] if host is network[3] else network[3]
        done = stranger.start([sys.executable, "-c", _STRANGER, host.address, str(port)], environ(network)).end()
        *got, refused = done.stdout.decode().splitlines()
        print(f"a stranger at {host.address}:{port}: {got}, {refused}")
        assert (done.returncode, got) == (0, ["got 0"] * 3) and refused.startswith("refused "), done
    late.touch()
    program.heard("ready")
    sockets = {pid: listening(pid) for pid in actors(network)}
    assert (
        len(sockets) > 2 and len({len(each) for each in sockets.values()}) == 1
    )  # as many as the queue, which is Ray's
    assert not any(int(each[-4:], 16) in MEETING_PORTS for found in sockets.values() for each in found)

    over.touch()
    found = program.heard("found")
    size = len(found)
    assert [each[0] for each in found] == [size * (size + 1) / 2] * size  # the job goes on
    (secret,) = {each[1] for each in found}
    assert len(secret) == 32 and [each[2] for each in found] == [[]] * size
    assert has_secret(secret.hex().encode(), secret)
    seen = [path for path, text in readable(network) if has_secret(text, secret)]
    errors = program.end()
    assert seen == [] and not has_secret(errors.encode(), secret)


def readable(network: Network) -> Iterator[tuple[Path, bytes]]:
    """Logs of Ray's, and variables and command lines of all processes."""
    count = 0
    for host in network.hosts:
        paths = [path for path in Path(f"/proc/{host.pid}/root/run/ray").rglob("*") if path.is_file()]
        paths += [Path(f"/proc/{pid}/{name}") for pid in host.processes() for name in ("environ", "cmdline")]
        for path in paths:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a process has ended
                yield path, path.read_bytes()
                count += 1
    assert count > 60


def test_who_has_no_token_is_no_client_of_the_cluster(network: Network) -> None:
    without = {name: value for name, value in environ(network).items() if name != "RAY_AUTH_TOKEN"}
    for token in ("", "0" * 64):
        own = {**without, **({"RAY_AUTH_TOKEN": token} if token else {}), "HOME": "/run"}
        done = network[2].start([sys.executable, "-c", "import ray; ray.init()"], own).end(60.0)
        assert done.returncode != 0 and b"oken" in done.stderr, done


_ELASTIC = """
executor = RayExecutor(settings, min_workers=2)
executor.start()
say("found", executor.run(elastic_programs.train, [sys.argv[1]], callbacks=[lambda logged: say("step", logged)]))
executor.shutdown()
"""


class Disturbance:
    """Something that happens at the third step, and how long it takes until fewer ranks go on.

    Args:
        disturb: does it.
        then: what is done when fewer go on.
    """

    def __init__(self, disturb: Callable[[], None], then: Callable[[], None] = lambda: None) -> None:
        self._disturb, self._then = disturb, then
        self._at_s = 0.0
        self.seconds = 0.0

    def on_step(self, seen: dict[str, Any]) -> None:
        if seen["step"] == 3 and not self._at_s:
            self._at_s = time.monotonic()
            self._disturb()
        elif self._at_s and not self.seconds and len(seen["pids"]) < 6:
            self.seconds = time.monotonic() - self._at_s
            self._then()


def test_a_node_that_is_killed_and_another_one(network: Network, run: Callable[..., Program], tmp_path: Path) -> None:
    (tmp_path / "wait_for").write_text("6")

    def kill() -> None:
        for pid, line in network[3].processes().items():
            if line.partition(" ")[0].endswith("/raylet"):
                os.kill(pid, signal.SIGKILL)

    disturbance = Disturbance(kill, lambda: start_node(network, network[3]))
    program = run(_ELASTIC, tmp_path)
    found = program.heard("found", disturbance.on_step)
    print(f"4 ranks go on {disturbance.seconds:.1f} s after the node was killed; {program.end()}")
    assert [each["rank"] for each in found] == list(range(6)) and found[0]["sizes"] == [6, 4, 6]
    assert len({each["total"] for each in found}) == 1 and 0 < disturbance.seconds < 60


def test_a_node_whose_cable_is_pulled(network: Network, run: Callable[..., Program], tmp_path: Path) -> None:
    disturbance = Disturbance(lambda: network.cut(network[3]))
    program = run(_ELASTIC, tmp_path)
    try:
        found = program.heard("found", disturbance.on_step)
    finally:
        network.join(network[3])
    print(f"4 ranks go on {disturbance.seconds:.1f} s after the cable was pulled; {program.end()}")
    assert [each["rank"] for each in found] == list(range(4)) and found[0]["sizes"] == [6, 4]
