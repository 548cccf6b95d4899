"""The HTTP server of `--metrics-port`: few clients at a time, and none for long."""

from __future__ import annotations

import contextlib
import select
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from horovod._core.errors import InvalidArgumentError
from horovod.runner.live.figures import Figures, Reading
from horovod.runner.showing import endpoint
from horovod.runner.showing.desk import Snapshot

PATIENCE_S = 20.0


class SomeDesk:
    """Knows two ranks of an elastic job which have one rank for a moment."""

    job = {"elastic": True}

    def ask(self) -> Snapshot:
        reading = Reading(Figures(steps=7, wall_ns=10**10), time.monotonic(), "alpha")
        return Snapshot(time.monotonic(), {0: reading, 5: reading}, frozenset({0, 5}))


def a_free_port(address: str) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def port() -> Iterator[int]:
    number = a_free_port("127.0.0.1")
    with endpoint.serving(SomeDesk(), "127.0.0.1", number):  # type: ignore[arg-type]
        yield number


def steps(place: str) -> list[tuple[dict[str, str], float]]:
    with urllib.request.urlopen(f"http://{place}/metrics", timeout=PATIENCE_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [(each.labels, each.value) for family in families for each in family.samples if "steps" in each.name]


def test_each_worker_has_a_series_of_its_own(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert steps(f"127.0.0.1:{port}") == [
        ({"rank": "0", "host": "alpha", "worker": "0"}, 7.0),
        ({"rank": "0", "host": "alpha", "worker": "5"}, 7.0),
    ]
    assert capfd.readouterr().err == ""


def test_it_ends_at_once() -> None:
    for _ in range(3):
        with endpoint.serving(SomeDesk(), "127.0.0.1", 0):  # type: ignore[arg-type]
            time.sleep(0.05)  # its thread waits for clients
            begin_s = time.monotonic()
        took_s = time.monotonic() - begin_s
        if took_s < 0.2:
            return
    raise AssertionError(f"it took {took_s} s")


def test_clients_that_send_nothing_are_bounded_in_number_and_time(
    port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 3.0)
    with contextlib.ExitStack() as undo:
        held = [undo.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) for _ in range(8)]
        deadline_s = time.monotonic() + PATIENCE_S
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as one_more:
            assert one_more.recv(1) == b""
            assert select.select(held, [], [], 0)[0] == []  # they still have their time
        assert all(sock.recv(1) == b"" for sock in held)
    assert time.monotonic() < deadline_s
    while len(steps_or_nothing(port)) != 2:
        assert time.monotonic() < deadline_s
    assert capfd.readouterr().err == ""


def steps_or_nothing(port: int) -> list[tuple[dict[str, str], float]]:
    try:
        return steps(f"127.0.0.1:{port}")
    except OSError:  # the last clients are just being let go
        return []


def test_it_listens_at_an_address_of_ipv6_and_ends() -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("This machine has no IPv6.")
    number = a_free_port("::1")
    with endpoint.serving(SomeDesk(), "::1", number):  # type: ignore[arg-type]
        assert len(steps(f"[::1]:{number}")) == 2
    with pytest.raises(OSError, match="refused"):
        steps(f"[::1]:{number}")


@pytest.mark.parametrize(("address", "number"), [("127.0.0.1", 1 << 17), ("no.such.name.invalid", 9400)])
def test_what_cannot_be_listened_at_is_named(address: str, number: int) -> None:
    served = endpoint.serving(SomeDesk(), address, number)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=f"nothing can listen on port {number} of {address}: "), served:
        pass
