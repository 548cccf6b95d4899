"""Pickled bytes that come from no rank of the job, or not for this operation, are not unpickled."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from fakes.ranks import run_ranks

from horovod._core.errors import HorovodInternalError
from horovod._core.life import session
from horovod._core.life.seal import Seal
from horovod._core.operations import objects
from horovod._core.operations.collectives import Collectives
from horovod._net.handshake.frames import auth

KEY = bytes(range(32))


class Bomb:
    """Says so when it is unpickled."""

    gone_off = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Bomb.go_off, ()

    @staticmethod
    def go_off() -> None:
        Bomb.gone_off = True


def pair() -> tuple[Seal, Seal]:
    return Seal(KEY, 0), Seal(KEY, 1)


def test_what_was_sealed_is_opened() -> None:
    zero, one = pair()
    for data in (b"", b"x", bytes(100_000)):
        assert one.open("op", zero.close("op", data), 0) == data


@pytest.mark.parametrize("at", [0, 31, 32, 35, 36, 43, 44, -1])
def test_one_changed_byte_is_enough(at: int) -> None:
    zero, one = pair()
    sealed = zero.close("op", b"some pickled bytes")
    sealed[at] ^= 1
    with pytest.raises(HorovodInternalError, match="op: the bytes received as rank 0's object"):
        one.open("op", sealed, 0)


@pytest.mark.parametrize("length", [0, 10, 32, 43, 44, 60])
def test_a_truncated_one_is_refused(length: int) -> None:
    zero, one = pair()
    with pytest.raises(HorovodInternalError):
        one.open("op", zero.close("op", b"some pickled bytes")[:length], 0)


def test_it_is_good_for_one_operation_one_sender_one_key_and_one_time() -> None:
    zero, one = pair()
    sealed = zero.close("op", b"data")
    for operation, sender in (("other", 0), ("op", 1)):
        with pytest.raises(HorovodInternalError):
            one.open(operation, sealed, sender)
    with pytest.raises(HorovodInternalError):
        Seal(bytes(32), 1).open("op", sealed, 0)
    assert one.open("op", sealed, 0) == b"data"
    with pytest.raises(HorovodInternalError):
        one.open("op", sealed, 0)


def test_threads_may_overtake_one_another_and_nothing_comes_twice() -> None:
    zero, one = pair()
    sealed = [zero.close("op", bytes([number % 256])) for number in range(70_000)]
    order = [*range(500), *range(999, 499, -1), *range(2000, 66_000), 1000, *range(66_000, 70_000)]
    for number in order:
        assert one.open("op", sealed[number], 0) == bytes([number % 256])
    for number in (0, 500, 999, 1000, 1500, 2000, 69_999):  # come before, or too late to tell
        with pytest.raises(HorovodInternalError):
            one.open("op", sealed[number], 0)


def test_the_key_is_of_one_job_and_epoch() -> None:
    credentials = [
        auth.Credentials(secret, job, epoch, rank, 4)
        for secret, job, epoch, rank in (
            (KEY, bytes(32), 1, 0),
            (bytes(32), bytes(32), 1, 0),
            (KEY, bytes(range(32)), 1, 0),
            (KEY, bytes(32), 2, 0),
        )
    ]
    assert len({each.object_key() for each in credentials}) == 4
    assert dataclasses.replace(credentials[0], rank=3).object_key() == credentials[0].object_key()


def sealed_ranks(body: Any) -> list[Any]:
    def with_seal(rank: int) -> Any:
        session.install(dataclasses.replace(session.require(), seal=Seal(KEY, rank)))
        return body(rank)

    return run_ranks(2, with_seal)


def test_objects_travel_sealed() -> None:
    def body(rank: int) -> Any:
        got = objects.broadcast_object({"from": rank}, root_rank=1), objects.allgather_object("x" * (rank + 1))
        return got, objects.broadcast_object(rank), objects.allgather_object(rank, name="n")

    assert sealed_ranks(body) == [(({"from": 1}, ["x", "xx"]), 0, [0, 1])] * 2


def test_the_attackers_object_is_not_unpickled(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Collectives.broadcast_

    def attacked(ops: Collectives, data: Any, root_rank: int, name: Any, process_set: Any) -> Any:
        """On its way to rank 1 somebody changes it."""
        real(ops, data, root_rank, name, process_set)
        if session.require().rank == 1 and name.endswith(".data"):
            begin = 44 if session.require().seal else 0
            bomb = pickle.dumps(Bomb())
            data[begin : begin + len(bomb)] = bomb

    def body(rank: int) -> Any:
        try:
            return objects.broadcast_object("a text that is long enough for the attacker's bytes" * 9)
        except HorovodInternalError as error:
            return str(error)

    monkeypatch.setattr(Collectives, "broadcast_", attacked)
    run_ranks(2, body)
    assert Bomb.gone_off, "without a seal the attack works"
    Bomb.gone_off = False
    _, told = sealed_ranks(body)
    assert "the bytes received as rank 0's object were not sent by that rank" in told
    assert not Bomb.gone_off
