"""A page of counters as it is read: its layout, what is under way, broken pages, the wire."""

from __future__ import annotations

import json

import pytest
from made_up import SECOND, a_rank, page

from horovod._native import abi
from horovod.runner.live import figures
from horovod.runner.live.figures import Figures, decoded, from_wire, is_on_wire, text_changes, to_wire
from horovod.runner.remote.wire import messages


def test_the_layout_is_that_of_the_header() -> None:
    names = {"blocked_ns": "BLOCKED_NS", "transfer_ns": "TRANSFER_NS"}
    for name, at in figures.PLACES.items():
        assert getattr(abi, f"COUNTER_{names.get(name, name).upper()}") == at, name
    for name in (
        *("BEGAN_NS", "PAUSED_NS", "PAUSED_SINCE_NS", "BLOCKED_THREADS", "BLOCKED_SINCE_NS", "BATCH_NS_THEN"),
        "BATCH_SINCE_NS",
        *("OPERATIONS", "ERROR_TURN", "ERROR_TEXT"),
    ):
        assert getattr(abi, f"COUNTER_{name}") == getattr(figures, name), name
    assert abi.COUNTER_WORDS == figures.WORDS
    assert abi.COUNTERS_LAYOUT == figures.LAYOUT
    kinds = abi.ENUMS["hvd_op_type"]
    assert [name.lower() for name in sorted(kinds, key=lambda name: kinds[name])] == list(figures.KINDS)


def test_a_page_is_read() -> None:
    words = {"w7": 2 * SECOND, "w34": 5, "w35": 640, "blocked_ns": 3 * SECOND, "transfer_ns": SECOND, "steps": 9}
    found = decoded(page(b"rank 1 was lost\0", **words, rank=3, pid=77, errors=1), 12 * SECOND)
    assert found is not None
    assert (found.rank, found.pid, found.steps, found.wall_ns) == (3, 77, 9, 10 * SECOND)
    assert (found.waiting_ns, found.transfer_ns) == (2 * SECOND, SECOND)
    assert found.operations[figures.KINDS.index("allgather")] == (5, 640)
    assert (found.bytes, found.errors, found.last_error) == (640, 1, "rank 1 was lost")


def test_the_time_between_two_engines_does_not_count() -> None:
    found = decoded(page(w7=2 * SECOND, w8=3 * SECOND), 12 * SECOND)
    assert found is not None
    assert found.wall_ns == 7 * SECOND
    found = decoded(page(w7=2 * SECOND, w8=3 * SECOND, w9=8 * SECOND), 12 * SECOND)  # now there is none again
    assert found is not None
    assert found.wall_ns == 3 * SECOND
    found = decoded(page(w7=2 * SECOND, w8=1 << 63), 12 * SECOND)
    assert found is not None
    assert found.wall_ns == 0


def test_a_wait_under_way_counts() -> None:
    words = {"w25": 1, "w26": 10 * SECOND, "blocked_ns": SECOND}
    found = decoded(page(**words), 14 * SECOND)
    assert found is not None
    assert (found.blocked_ns, found.transfer_ns) == (5 * SECOND, 0)
    # The batch has run for one of the four seconds.
    found = decoded(page(**words, w27=7 * SECOND, w28=13 * SECOND, batch_ns=7 * SECOND), 14 * SECOND)
    assert found is not None
    assert (found.blocked_ns, found.transfer_ns, found.batch_ns) == (5 * SECOND, SECOND, 8 * SECOND)


@pytest.mark.parametrize("made", [b"", b"\0" * figures.BYTES, page()[:-1], b"\xff" * figures.BYTES])
def test_what_is_no_page_is_nothing(made: bytes) -> None:
    assert decoded(made, SECOND) is None


def test_numbers_beyond_all_measure_and_texts_of_any_bytes_are_read() -> None:
    found = decoded(page(b"\x1b[2J\xff\n" + b"x" * 250, tensors=(1 << 64) - 1, w26=5, w25=1), 1)
    assert found is not None
    assert found.tensors == (1 << 63) - 1
    assert found.last_error.startswith(" [2J")
    assert is_on_wire(json.loads(json.dumps(to_wire(found))))


def test_a_scribbled_page_goes_over_the_wire() -> None:
    scribbled = bytearray(b"\xff" * figures.BYTES)
    scribbled[:8] = page()[:8]  # else it is none
    found = decoded(bytes(scribbled), SECOND)
    assert found is not None
    assert found.operations[0] == ((1 << 63) - 1,) * 2
    assert found.last_error.startswith("\ufffd")
    body = messages.encode("figures", ranks=[[3, *to_wire(found)]])
    assert messages.decode(body, messages.FROM_AGENT)[1]["ranks"] == json.loads(body)["ranks"]
    # What is under way does not lift a number above the limit either.
    words = {"w25": 1, "w26": 5, "w28": 5, "blocked_ns": (1 << 63) - 1, "transfer_ns": (1 << 63) - 1}
    found = decoded(page(**words, batch_ns=(1 << 63) - 1), 9 * SECOND)
    assert found is not None
    assert is_on_wire(json.loads(json.dumps(to_wire(found))))


@pytest.mark.parametrize("text", ["\u00e9", "\ufffd", "\U0001f600", '"', "x"])
def test_a_text_is_bounded_in_bytes(text: str) -> None:
    found = from_wire(to_wire(Figures(last_error=300 * text)))
    assert 250 < len(found.last_error.encode()) <= figures.MOST_ERROR
    assert set(found.last_error) == {text}


def test_a_text_that_is_being_written_is_noticed() -> None:
    assert text_changes(page(w50=3))
    assert not text_changes(page(w50=4))
    assert not text_changes(b"")


def test_the_wire_keeps_everything() -> None:
    made = a_rank(1, 0.5, 0.1, last_error="broken", errors=2)
    assert from_wire(json.loads(json.dumps(to_wire(made)))) == made
    assert not is_on_wire(to_wire(Figures(last_error="x" * 300)))
