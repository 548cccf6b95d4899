"""The ranks' output: lines, prefixes, files, and the launcher's buffers."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import InvalidArgumentError
from horovod.runner.lines import LineSplitter, Piece
from horovod.runner.output import Outlet, OutputFile, RankStream, outlets, rank_directory


def pieces(*chunks: bytes) -> list[Piece]:
    splitter = LineSplitter()
    found = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return found + splitter.finish()


def split(*chunks: bytes) -> list[bytes]:
    """The lines that remain on a screen."""
    return [piece.text for piece in pieces(*chunks) if piece.ended]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\n", b"c"], [b"ab", b"c"]),
        ([b"a\n\nb\n"], [b"a", b"", b"b"]),
        ([b"\r10%\r20%\r30%\ndone\n"], [b"30%", b"done"]),
        ([b"10%\r20%\r\ndone\n"], [b"20%", b"done"]),
        ([b"a\r\nb\r\n"], [b"a", b"b"]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"\r", b"\nb\n"], [b"", b"b"]),
        ([b"a\r", b"b\n"], [b"b"]),
        ([b"a\r", b"b"], [b"b"]),
        ([b"\r"], []),
        (["naïve 数\n".encode()[:4], "naïve 数\n".encode()[4:]], ["naïve 数".encode()]),
        ([], []),
    ],
)
def test_lines(chunks: list[bytes], lines: list[bytes]) -> None:
    assert split(*chunks) == lines


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", "ü".encode(), b"xyz"]), max_size=20), st.data())
def test_lines_do_not_depend_on_how_the_bytes_arrive(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)])]
    assert split(*chunks) == split(whole)
    assert {piece.text for piece in pieces(whole)} <= {piece.text for piece in pieces(*chunks)}


@given(st.lists(st.sampled_from([b"a", b"\n", "ü".encode(), b"xyz", b"\r\n"]), max_size=20))
def test_nothing_is_lost_but_ends_of_lines(parts: list[bytes]) -> None:
    assert b"".join(split(*parts)) == b"".join(parts).replace(b"\r\n", b"\n").replace(b"\n", b"")


def test_each_state_of_a_progress_bar_is_shown_at_once_and_once() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"start") == []
    assert splitter.feed(b"\r10%") == [Piece(b"start", False), Piece(b"10%", False)]
    assert splitter.feed(b"") == []
    assert splitter.feed(b"\r20") == [Piece(b"20", False)]
    assert splitter.feed(b"%\r") == [Piece(b"20%", False)]
    assert splitter.feed(b"\r20%\r30%") == [Piece(b"30%", False)]
    assert splitter.feed(b"\nend\n") == [Piece(b"30%", True), Piece(b"end", True)]


def test_an_endless_line_is_cut_between_characters() -> None:
    text = "x" + "数" * 60000
    lines = split(text.encode())
    assert len(lines) > 1
    assert "".join(line.decode() for line in lines) == text


@pytest.mark.parametrize(
    "chunks",
    [
        [b"\r" + b"x" * 65535, b"x"],
        [b"\r" + b"x" * 65535 + b"\r"],
        [b"\r" + b"x" * 65536, b"\r"],
        [b"\r" + b"x" * 65535, b"\r" * 9],
    ],
)
def test_what_overwrites_a_line_may_be_as_long_as_any(chunks: list[bytes]) -> None:
    text = b"".join(chunks).strip(b"\r")
    assert split(*chunks) == [text]
    assert split(*chunks, b"\nnext") == [text, b"next"]


def test_prefix_tail_and_file(tmp_path: Path) -> None:
    stream = RankStream(3, "stderr", tmp_path / "f")
    assert stream.feed(b"one\ntw") == b"[3]<stderr>:one\n"
    assert stream.feed(b"o\rthree") == b"[3]<stderr>:two\r[3]<stderr>:three"
    assert stream.finish() == b"\r[3]<stderr>:three\n"
    assert list(stream.tail) == [b"one", b"three"]
    assert (tmp_path / "f").read_bytes() == b"one\ntwo\rthree"


def test_timestamp() -> None:
    stream = RankStream(0, "stdout", clock=lambda: 86400.0 * 365)
    prefix, _, rest = stream.feed(b"x\n").partition(b"[0]<stdout>:")
    assert rest == b"x\n"
    assert prefix.startswith((b"Fri Jan  1", b"Thu Dec 31"))
    assert prefix.endswith((b"1971", b"1970"))


def test_the_tail_is_bounded() -> None:
    stream = RankStream(0, "stderr")
    stream.feed(b"".join(b"%d" % index + b"x" * 1000 + b"\n" for index in range(100)))
    assert len(stream.tail) == 20
    assert all(len(line) <= 500 for line in stream.tail)
    assert stream.tail[-1].startswith(b"99x")


@pytest.mark.parametrize(
    ("rank", "size", "name"), [(0, 1, "rank.0"), (0, 10, "rank.0"), (3, 11, "rank.03"), (7, 101, "rank.007")]
)
def test_directory_of_a_rank(rank: int, size: int, name: str) -> None:
    assert rank_directory(Path("/o"), rank, size) == Path("/o") / name


def test_outlet_without_a_descriptor_writes_at_once() -> None:
    stream = io.StringIO()
    outlet = Outlet(stream)
    outlet.put("ü\n".encode())
    assert stream.getvalue() == "ü\n"
    assert not outlet.waiting


def test_outlet_writes_whole_lines_to_a_slow_pipe_and_survives_its_end() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        outlet = Outlet(stream)
        outlet.put(b"x" * 5000)
        outlet.write_some()
        assert outlet.waiting
        assert len(os.read(reader, 1 << 16)) == 4096
        outlet.write_some()
        assert len(os.read(reader, 1 << 16)) == 904
        assert not outlet.waiting
        os.close(reader)
        outlet.put(b"y")
        outlet.write_some()
        assert not outlet.waiting


def shown(*texts: tuple[bytes, object]) -> str:
    stream = io.StringIO()
    outlet = Outlet(stream)
    for text, owner in texts:
        outlet.put(text, owner)
    outlet.finish_line()
    return stream.getvalue()


def test_a_line_is_overwritten_by_its_owner_and_ended_before_others_speak() -> None:
    assert shown((b"0:a", 0), (b"\r0:b", 0), (b"\r0:b\n", 0), (b"0:c\n", 0)) == "0:a\r0:b\n0:c\n"
    assert shown((b"0:a", 0), (b"1:x\n", 1), (b"\r0:b\n", 0)) == "0:a\n1:x\n0:b\n"
    assert shown((b"0:a", 0), (b"1:x", 1), (b"\r0:b", 0), (b"\r1:y", 1)) == "0:a\n1:x\n0:b\n1:y\n"
    assert shown((b"0:1", 0), (b"\r0:12", 0), (b"\r0:120\r0:3", 0)) == "0:120\r0:3\n"
    assert shown((b"0:a", 0), (b"horovodrun: x\n", None)) == "0:a\nhorovodrun: x\n"


def test_on_a_terminal_others_wipe_the_line_away() -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stream:
        outlet = Outlet(stream)
        for text, owner in ((b"0:10%", 0), (b"1:x\n", 1), (b"\r0:20%", 0), (b"\r\x1b[K", None)):
            outlet.put(text, owner)
        outlet.finish_line()
        outlet.write_some()
    assert os.read(master, 100) == b"0:10%\r\x1b[K1:x\r\n0:20%\r\x1b[K\x1b[K"
    os.close(master)


def test_a_slow_reader_makes_the_outlet_full() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb"), os.fdopen(writer, "w") as stream:
        outlet = Outlet(stream)
        outlet.put(b"x" * (1 << 20))
        assert not outlet.full
        outlet.put(b"x")
        assert outlet.full


def test_two_streams_to_one_file_share_an_outlet(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as one, (tmp_path / "a").open("a") as again, (tmp_path / "b").open("w") as other:
        shared = outlets(one, again)
        assert shared["stdout"] is shared["stderr"]
        apart = outlets(one, other)
        assert apart["stdout"] is not apart["stderr"]


def test_a_fifo_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    os.mkfifo(path)
    with pytest.raises(InvalidArgumentError, match="cannot be written: No such device"):
        OutputFile(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = OutputFile(path)
    file.write(b"text")
    assert os.read(reader, 10) == b"text"
    file.close()
    os.close(reader)
