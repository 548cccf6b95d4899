"""Tests of horovod._net.handshake.frames.messages: every message survives the wire, and nothing else does."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._net.failures import ProtocolError
from horovod._net.handshake.frames import messages
from horovod._net.handshake.frames.messages import AFTER_AUTHENTICATION, BEFORE_AUTHENTICATION, FrameReader, frame

EVERY_KIND = BEFORE_AUTHENTICATION | AFTER_AUTHENTICATION
ranks = st.integers(0, messages.MAX_RANKS - 1)
words = st.binary(min_size=32, max_size=32)
longs = st.integers(0, 2**64 - 1)
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=1000)

any_message = st.one_of(
    st.builds(messages.Knock, ranks),
    st.builds(messages.Hello, words, longs, st.integers(1, 3), ranks, ranks, ranks, words),
    st.builds(messages.Challenge, words, words),
    st.builds(messages.Proof, words),
    st.builds(messages.Offer, st.booleans(), st.booleans(), longs, longs, st.binary(min_size=36, max_size=36)),
    st.builds(messages.Seen, words),
    st.builds(messages.Address, st.integers(0, 65535), texts),
    st.builds(messages.Ready),
    st.builds(messages.Failed, st.integers(-1, 2**31 - 1), texts),
)


def read_all(reader: FrameReader, data: bytes) -> list[messages.AnyMessage]:
    reader.feed(data)
    found = []
    message = reader.next()
    while message is not None:
        found.append(message)
        message = reader.next()
    return found


@given(st.lists(any_message, max_size=5), st.integers(1, 40))
def test_messages_survive_any_way_of_cutting_the_stream(sent: list[messages.AnyMessage], piece: int) -> None:
    stream = b"".join(map(frame, sent))
    reader = FrameReader(EVERY_KIND)
    received = [m for at in range(0, len(stream), piece) for m in read_all(reader, stream[at : at + piece])]
    assert list(map(type, received)) == list(map(type, sent))
    assert received == sent and reader.missing_bytes == messages.HEADER_BYTES


@given(st.binary(max_size=300))
def test_garbage_is_a_protocol_error_or_waits_for_more(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert read_all(FrameReader(), data) == [] or data[:4] == messages.MAGIC


@given(any_message, st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_frame_is_a_message_or_a_protocol_error(message: messages.AnyMessage, at: int, value: int) -> None:
    data = bytearray(frame(message))
    data[at % len(data)] = value
    reader = FrameReader(EVERY_KIND)
    try:
        for found in read_all(reader, bytes(data)):
            assert type(found) in messages.TYPE_OF_KIND.values()
    except ProtocolError:
        pass


@given(st.sampled_from(sorted(EVERY_KIND)), st.binary(max_size=200))
def test_any_body_of_any_kind_is_a_message_or_a_protocol_error(kind: int, body: bytes) -> None:
    data = struct.pack(">4sBBHI", messages.MAGIC, messages.VERSION, kind, 0, len(body)) + body
    try:
        (message,) = read_all(FrameReader(EVERY_KIND), data)
        assert type(message) is messages.TYPE_OF_KIND[kind]
    except ProtocolError:
        pass


@pytest.mark.parametrize("kind", sorted(EVERY_KIND))
def test_a_frame_that_announces_too_much_is_refused_before_its_body_comes(kind: int) -> None:
    reader = FrameReader(EVERY_KIND)
    reader.feed(struct.pack(">4sBBHI", messages.MAGIC, messages.VERSION, kind, 0, 5000))
    with pytest.raises(ProtocolError, match="too long"):
        reader.next()


def test_a_truncated_frame_waits() -> None:
    reader = FrameReader()
    assert read_all(reader, frame(messages.Proof(bytes(32)))[:-1]) == []


def test_another_version_is_refused_and_named() -> None:
    data = bytearray(frame(messages.Knock(1)))
    data[4] = messages.VERSION + 1
    with pytest.raises(ProtocolError, match=f"version {messages.VERSION + 1}, this side speaks {messages.VERSION}"):
        read_all(FrameReader(), bytes(data))


def test_the_first_wrong_byte_is_enough() -> None:
    with pytest.raises(ProtocolError):
        read_all(FrameReader(), b"G")


@pytest.mark.parametrize("message", [messages.Ready(), messages.Failed(0, "x"), messages.Address(1, "host")])
def test_payload_is_not_parsed_before_authentication(message: messages.AnyMessage) -> None:
    with pytest.raises(ProtocolError, match="not allowed here"):
        read_all(FrameReader(), frame(message))


def test_a_long_reason_is_cut_not_refused() -> None:
    (message,) = read_all(FrameReader(AFTER_AUTHENTICATION), frame(messages.Failed(1, "x" * 10000)))
    assert message == messages.Failed(1, "x" * messages.MAX_TEXT_BYTES)


def test_an_impossible_rank_or_role_is_refused() -> None:
    with pytest.raises(ProtocolError, match="larger than any job"):
        messages.parse(messages.Knock, struct.pack(">I", 2**31))
    with pytest.raises(ProtocolError, match="role 9"):
        read_all(FrameReader(), frame(messages.Hello(bytes(32), 0, 9, 2, 0, 1, bytes(32))))
