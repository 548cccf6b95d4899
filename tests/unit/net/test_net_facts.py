"""What follows from what the ranks tell of themselves: hosts, their names, their addresses."""

from __future__ import annotations

import socket

import pytest

from horovod._net import fact_exchange
from horovod._net.failures import MeetingError
from horovod._net.interfaces import networks_of_this_host
from horovod._net.meeting.facts import Facts, addresses_of, hosts_of, names_of, unpacked
from horovod._net.mpi import gathering


def facts(place: str, *networks: str, host: str = "node") -> Facts:
    return Facts(host, place, networks)


def test_facts_survive_the_trip() -> None:
    told = Facts("node7", "boot.1.0.5", ("10.0.0.7/24", "fd00::7/64"), "1.0")
    assert unpacked(0, told.packed()) == told


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1,2,3]", b'["a","b",["10.0.0.300/24"],"1"]', b'["a","b"]', b"\xff", b"[" * 9]
)
def test_other_bytes_are_a_clear_error(data: bytes) -> None:
    with pytest.raises(MeetingError, match="Rank 3 introduced itself in an unknown format"):
        unpacked(3, data)


def test_facts_of_any_host_fit_into_a_block() -> None:
    many = tuple(f"2001:db8:aaaa:bbbb:cccc:dddd:eeee:{number:04x}/64" for number in range(100))
    data = Facts("ä" * 300, "p" * 300, many).packed()
    assert len(data) > 700
    assert gathering.unpacked(gathering.packed(data[:1000])) == data[:1000]
    small = Facts("n" * 64, "p" * 80, many).packed()
    assert gathering.unpacked(gathering.packed(small)) == small


def test_a_block_that_is_too_long_is_refused() -> None:
    with pytest.raises(MeetingError, match="do not fit"):
        gathering.packed(bytes(gathering.BLOCK_BYTES))


def test_hosts_are_numbered_in_the_order_of_their_ranks() -> None:
    assert hosts_of([facts("b"), facts("a"), facts("b"), facts("c")]) == [0, 1, 0, 2]


def test_hosts_with_one_name_are_distinguished() -> None:
    told = [facts("a", host="web"), facts("b", host="web"), facts("c", host="db"), facts("b", host="web")]
    assert names_of(told) == ["web#0", "web#1", "db", "web#1"]


def test_a_name_has_no_spaces_and_is_never_empty() -> None:
    assert names_of([facts("a", host="my host"), facts("b", host=" ")]) == ["myhost", "host"]


def test_the_network_that_all_hosts_are_in_wins() -> None:
    told = [
        facts("a", "192.168.1.5/24", "10.0.0.1/16"),
        facts("b", "10.0.1.2/16", "192.168.7.1/24"),
        facts("a", "192.168.1.5/24", "10.0.0.1/16"),
    ]
    assert addresses_of(told) == ["10.0.0.1", "10.0.1.2", "10.0.0.1"]


def test_the_bridge_that_every_host_has_for_itself_is_nobodys() -> None:
    told = [facts("a", "172.17.0.1/16", "10.0.0.1/24"), facts("b", "172.17.0.1/16", "10.0.0.2/24")]
    assert addresses_of(told) == ["10.0.0.1", "10.0.0.2"]


def test_without_a_common_network_each_host_says_what_is_likeliest() -> None:
    told = [facts("a", "10.0.0.1/24", "172.17.0.1/16"), facts("b", "10.0.1.1/24", "172.17.0.1/16")]
    assert addresses_of(told) == ["10.0.0.1", "10.0.1.1"]


def test_containers_of_one_machine_that_share_its_network_keep_its_address() -> None:
    assert addresses_of([facts("a", "10.0.0.1/24"), facts("b", "10.0.0.1/24")]) == ["10.0.0.1", "10.0.0.1"]


def test_a_host_without_a_network_has_no_address() -> None:
    assert addresses_of([facts("a", "10.0.0.1/24"), facts("b")]) == ["10.0.0.1", ""]


def test_the_network_of_this_machine_has_no_loopback_and_begins_with_its_way_out() -> None:
    found = networks_of_this_host(())
    assert not any(each.startswith(("127.", "::1")) for each in found)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing; the kernel chooses by its routes
        except OSError:
            return
        assert found[0].startswith(f"{sock.getsockname()[0]}/")


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ()),
        ({"OMPI_MCA_btl_tcp_if_include": "eth0,eth1"}, ("eth0", "eth1")),
        ({"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/16"}, ()),
        ({"UCX_NET_DEVICES": "mlx5_0:1,eth0"}, ("mlx5_0", "eth0")),
        ({"UCX_NET_DEVICES": "all"}, ()),
    ],
)
def test_what_the_user_has_named_for_mpi_is_good_for_us(environ: dict[str, str], names: tuple[str, ...]) -> None:
    assert fact_exchange.interfaces_of_mpi(environ) == names
