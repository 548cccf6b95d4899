"""What mpirun writes is given on in whole lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.mpi.relay import Relay


def test_a_line_that_comes_in_parts_is_given_on_at_its_end() -> None:
    relay = Relay("stdout")
    assert [relay.feed(part) for part in (b"[0] ", b"said\n[1", b"] x")] == [b"", b"[0] said\n", b""]
    assert relay.finish() == b"[1] x\n"
    assert relay.finish() == b""


@given(st.lists(st.binary(max_size=20)))
def test_nothing_is_lost_or_added_but_a_last_end_of_line(parts: list[bytes]) -> None:
    relay, whole = Relay("stderr"), b"".join(parts)
    given_on = [relay.feed(part) for part in parts]
    assert all(text.endswith(b"\n") for text in given_on if text)
    end = b"" if not whole or whole.endswith(b"\n") else b"\n"
    assert b"".join(given_on) + relay.finish() == whole + end


def test_a_line_without_an_end_is_cut() -> None:
    relay = Relay("stdout")
    assert relay.feed(b"a\n" + b"x" * (1 << 16)) == b"a\n" + b"x" * (1 << 16) + b"\n"
    assert relay.feed(b"y\n") == b"y\n"
