"""When the other side of a link counts as lost, over virtual time; and the datagrams by which it is known to live."""

from __future__ import annotations

import socket
from typing import Optional

import pytest

from horovod.runner.remote.wire import pulses
from horovod.runner.remote.wire.pulses import KEY_BYTES, Pulses, datagram, number_of
from horovod.runner.remote.wire.vigil import LOOK_S, Vigil

ARP_S = 0.5  # to find the other host's hardware address again, beyond the first datagram


def tcp_return(cut_s: float) -> float:
    """When TCP has repeated what was sent in the first second of a cut, in the worst case."""
    at_s = 1.0
    pause_s = 0.2
    while at_s < cut_s:
        at_s += pause_s
        pause_s *= 2
    return at_s


def believed(timeout_s: float, cut_s: float, by_datagram: bool, phase_s: float) -> Optional[float]:
    """When a silence that begins at 0 is believed; None: never."""
    vigil = Vigil(timeout_s, -10.0, begun=True)
    vigil.heard(-phase_s)
    if by_datagram:
        vigil.heard_datagram(-phase_s / 4)
    back_s = cut_s + LOOK_S + ARP_S if by_datagram else tcp_return(cut_s)
    at_s = phase_s * LOOK_S
    vigil.believed_s(at_s - LOOK_S)
    while at_s < 500:
        if at_s >= back_s:
            vigil.heard_datagram(at_s) if by_datagram else vigil.heard(at_s)
            if by_datagram and at_s >= tcp_return(cut_s):
                vigil.heard(at_s)
            if at_s > back_s + cut_s + 5:
                return None
        if vigil.believed_s(at_s) is not None:
            return at_s
        at_s += LOOK_S
    return None


@pytest.mark.parametrize("timeout_s", [1.0, 5.0, 60.0])
@pytest.mark.parametrize("by_datagram", [True, False])
def test_a_keeper_waits_longer_than_the_launcher_does(timeout_s: float, by_datagram: bool) -> None:
    vigil = Vigil(timeout_s, 0.0, begun=True)
    if by_datagram:
        vigil.heard_datagram(0.0)
    launchers_s = believed(timeout_s, 1e6, by_datagram, 0.0)
    assert launchers_s is not None and launchers_s < vigil.keepers_s < launchers_s + 1.0
    assert vigil.busy_s == timeout_s - 0.5


@pytest.mark.parametrize("timeout_s", [1.0, 3.0, 4.4, 5.0, 8.0, 60.0])
@pytest.mark.parametrize("by_datagram", [True, False])
@pytest.mark.parametrize("phase_s", [0.0, 0.5, 0.99])
def test_shorter_cuts_are_survived_and_longer_ones_are_believed(
    timeout_s: float, by_datagram: bool, phase_s: float
) -> None:
    tenths = range(1, int(timeout_s * 10) - 4)
    assert [each / 10 for each in tenths if believed(timeout_s, each / 10, by_datagram, phase_s) is not None] == []
    at_s = believed(timeout_s, 1e6, by_datagram, phase_s)
    assert at_s is not None
    assert at_s <= (timeout_s + 1.5 if by_datagram else 2 * timeout_s + 2.5)


def test_datagrams_that_stopped_before_the_stream_do_not_count() -> None:
    vigil = Vigil(5.0, 0.0, begun=True)
    vigil.heard_datagram(1.0)
    for number in range(20 * 8):  # a firewall has forgotten them
        vigil.heard(number / 8)
        assert vigil.believed_s(number / 8) is None
    looks = [20.0 + number * LOOK_S for number in range(120)]
    assert next(now_s for now_s in looks if vigil.believed_s(now_s) is not None) > 31.9


def test_whoever_has_stood_still_begins_again() -> None:
    vigil = Vigil(5.0, 0.0, begun=True)
    assert vigil.believed_s(100.0) is None
    for tenth in range(1, 80):
        vigil.believed_s(100.0 + tenth / 10)
    assert vigil.believed_s(108.1) is None
    for tenth in range(1, 39):
        vigil.believed_s(108.1 + tenth / 10)
    assert vigil.believed_s(112.1) is not None


def test_an_agent_that_logs_in_may_take_its_time_and_one_that_is_patient_too() -> None:
    vigil = Vigil(5.0, 0.0, begun=False)
    for second in range(60):
        vigil.begin(second)  # what a login shell prints is no sign of an agent
        assert vigil.believed_s(float(second)) is None
    vigil.heard(60.0)
    vigil.patient = True
    for second in range(60, 200):
        assert vigil.believed_s(float(second)) is None


KEY = bytes(range(KEY_BYTES))


def test_datagrams_say_their_number_under_the_key_alone() -> None:
    data = datagram(KEY, b"?", 7)
    assert number_of(KEY, b"?", data) == 7
    wrong = [data[:-1], data + b"x", b"!" + data[1:], data[:-1] + bytes([data[-1] ^ 1]), b"", b"?" * 600]
    assert [number_of(KEY, b"?", each) for each in wrong] == [None] * len(wrong)
    assert number_of(bytes(KEY_BYTES), b"?", data) is None
    assert number_of(KEY, b"!", data) is None


def _hears(side: Pulses) -> bool:
    return any(side.hear() for _ in range(200))


def test_a_question_is_answered_and_nothing_counts_twice() -> None:
    agent = Pulses(KEY, "127.0.0.1", 0, asks=False)
    launcher = Pulses(KEY, "127.0.0.1", agent.port, asks=True)
    try:
        assert not agent.hear() and not launcher.hear()
        launcher.ask()
        assert _hears(agent) and _hears(launcher)
        assert not agent.hear() and not launcher.hear()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for data in (datagram(KEY, b"?", 1), datagram(bytes(KEY_BYTES), b"?", 9), b"", b"x" * 1000):
                stranger.sendto(data, ("127.0.0.1", agent.port))
            assert not _hears(agent)
            for _ in range(3 * pulses._AT_ONCE):  # a flood does not keep a true question out for ever
                stranger.sendto(b"x" * 25, ("127.0.0.1", agent.port))
        launcher.ask()
        assert _hears(agent) and _hears(launcher)
    finally:
        agent.close()
        launcher.close()
    launcher.ask()  # of a link that has just ended


def test_a_launcher_whose_agent_is_gone_hears_nothing_and_does_not_fail() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        port = gone.getsockname()[1]
    launcher = Pulses(KEY, "127.0.0.1", port, asks=True)
    for _ in range(3):
        launcher.ask()
        assert not launcher.hear()
    launcher.close()
