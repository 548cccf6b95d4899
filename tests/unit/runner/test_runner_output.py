"""The ranks' output: lines, prefixes, files, and the launcher's buffers."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.output import LineSplitter, Outlet, RankStream, outlets, rank_directory


def split(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.finish()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\n", b"c"], [b"ab", b"c"]),
        ([b"a\n\nb\n"], [b"a", b"", b"b"]),
        ([b"\r10%\r20%\r30%\ndone\n"], [b"10%", b"20%", b"30%", b"done"]),
        ([b"a\r\nb\r\n"], [b"a", b"b"]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"\r", b"\nb\n"], [b"", b"b"]),
        ([b"a\r", b"b\n"], [b"a", b"b"]),
        (["naïve 数\n".encode()[:4], "naïve 数\n".encode()[4:]], ["naïve 数".encode()]),
        ([], []),
    ],
)
def test_lines(chunks: list[bytes], lines: list[bytes]) -> None:
    assert split(*chunks) == lines


@given(st.lists(st.sampled_from([b"a", b"\n", b"\r", "ü".encode(), b"xyz"]), max_size=20), st.data())
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)])]
    assert split(*chunks) == split(whole)
    # `split(b"")`-like empties aside, nothing is lost but ends of lines.
    assert b"".join(split(*chunks)) == whole.replace(b"\n", b"").replace(b"\r", b"")


def test_an_endless_line_is_cut_between_characters() -> None:
    text = "x" + "数" * 60000
    lines = split(text.encode())
    assert len(lines) > 1
    assert "".join(line.decode() for line in lines) == text


def test_prefix_tail_and_file(tmp_path: Path) -> None:
    stream = RankStream(3, "stderr", tmp_path / "f")
    assert stream.feed(b"one\ntw") == b"[3]<stderr>:one\n"
    assert stream.feed(b"o\rthree") == b"[3]<stderr>:two\n"
    assert stream.finish() == b"[3]<stderr>:three\n"
    assert list(stream.tail) == [b"one", b"two", b"three"]
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
        outlet.drain()
        assert not outlet.waiting


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
