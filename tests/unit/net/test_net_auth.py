"""Tests of horovod._net.handshake.frames.auth: who is accepted, and that nobody else is."""

from __future__ import annotations

import dataclasses

import pytest

from horovod._net.failures import AuthenticationError
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.messages import ROLE_CONTROL, ROLE_DATA, ROLE_MEET, Challenge, Proof

JOB = auth.job_digest("job")
SECRET = bytes(range(32))


def credentials(of: int, **changes: object) -> auth.Credentials:
    return dataclasses.replace(auth.Credentials(SECRET, JOB, 5, of, 4), **changes)


def handshake(connecting: auth.Credentials, accepting: auth.Credentials, role: int = ROLE_MEET) -> tuple[bytes, bytes]:
    connector, acceptor = auth.Connector(connecting, accepting.rank, role), auth.Acceptor(accepting)
    acceptor.check(connector.answer(acceptor.challenge(connector.hello)))
    return connector.key or b"", acceptor.key or b"!"


def test_both_sides_get_the_same_key() -> None:
    ours, theirs = handshake(credentials(2), credentials(0))
    assert ours == theirs and len(ours) == auth.KEY_BYTES


def test_every_connection_has_its_own_key() -> None:
    keys = {handshake(credentials(2), credentials(0), role)[0] for role in (ROLE_CONTROL, ROLE_DATA, ROLE_DATA)}
    assert len(keys) == 3


def test_an_acceptor_without_the_secret_is_found_out_before_our_proof_leaves() -> None:
    connector = auth.Connector(credentials(2), 0, ROLE_MEET)
    impostor = auth.Acceptor(credentials(0, secret=bytes(32)))
    with pytest.raises(AuthenticationError, match="rank 0 does not hold this job's secret"):
        connector.answer(impostor.challenge(connector.hello))
    assert connector.key is None


def test_a_connector_without_the_secret_is_refused() -> None:
    acceptor = auth.Acceptor(credentials(0))
    impostor = auth.Connector(credentials(2), 0, ROLE_MEET)
    acceptor.challenge(impostor.hello)
    with pytest.raises(AuthenticationError, match="claims to be rank 2"):
        acceptor.check(Proof(bytes(32)))
    assert acceptor.key is None


def test_a_recorded_conversation_cannot_be_replayed() -> None:
    connector, first = auth.Connector(credentials(2), 0, ROLE_MEET), auth.Acceptor(credentials(0))
    proof = connector.answer(first.challenge(connector.hello))
    first.check(proof)
    second = auth.Acceptor(credentials(0))
    second.challenge(connector.hello)
    with pytest.raises(AuthenticationError):
        second.check(proof)


def test_a_proof_cannot_be_reflected() -> None:
    acceptor = auth.Acceptor(credentials(0))
    challenge = acceptor.challenge(auth.Connector(credentials(2), 0, ROLE_MEET).hello)
    with pytest.raises(AuthenticationError):
        acceptor.check(Proof(challenge.proof))


def test_a_proof_for_one_role_is_not_good_for_another() -> None:
    connector, acceptor = auth.Connector(credentials(2), 0, ROLE_CONTROL), auth.Acceptor(credentials(0))
    challenge = acceptor.challenge(connector.hello._replace(role=ROLE_DATA))
    with pytest.raises(AuthenticationError):
        connector.answer(challenge)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 4}, "comes with epoch 4; this is epoch 5"),
        ({"job": auth.job_digest("other")}, "another job"),
        ({"size": 5}, "belongs to a job of 5 ranks, this one has 4"),
        ({"rank": 0}, "but this is rank 0"),
        ({"rank": 4, "size": 4}, "but this is rank 0"),
    ],
)
def test_a_stranger_is_refused_at_hello(change: dict[str, object], message: str) -> None:
    connector = auth.Connector(credentials(2, **change), 0, ROLE_MEET)
    with pytest.raises(AuthenticationError, match=message):
        auth.Acceptor(credentials(0)).challenge(connector.hello)


def test_a_connection_for_another_rank_is_refused() -> None:
    connector = auth.Connector(credentials(2), 1, ROLE_MEET)
    with pytest.raises(AuthenticationError, match="asks for rank 1, but this is rank 0"):
        auth.Acceptor(credentials(0)).challenge(connector.hello)


def test_a_second_hello_is_refused() -> None:
    acceptor = auth.Acceptor(credentials(0))
    acceptor.challenge(auth.Connector(credentials(2), 0, ROLE_MEET).hello)
    with pytest.raises(AuthenticationError, match="Hello twice"):
        acceptor.challenge(auth.Connector(credentials(3), 0, ROLE_MEET).hello)


def test_a_proof_before_the_hello_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="arrived before Hello"):
        auth.Acceptor(credentials(0)).check(Proof(bytes(32)))


def test_a_changed_nonce_breaks_the_proof() -> None:
    connector, acceptor = auth.Connector(credentials(2), 0, ROLE_MEET), auth.Acceptor(credentials(0))
    challenge = acceptor.challenge(connector.hello)
    with pytest.raises(AuthenticationError):
        connector.answer(Challenge(bytes(32), challenge.proof))


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="must have 32 bytes; it has 16"):
        credentials(0, secret=bytes(16))


def test_the_secret_does_not_show_in_text() -> None:
    assert SECRET.hex() not in repr(credentials(0)) and repr(SECRET) not in repr(credentials(0))
