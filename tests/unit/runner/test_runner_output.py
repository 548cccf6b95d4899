"""The ranks' output: lines, prefixes, files, and the launcher's buffers."""

from __future__ import annotations

import io
import os
import re
import select
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import InvalidArgumentError
from horovod.runner.display import standard_streams
from horovod.runner.display.line_style import LineStyle, moves_cursor, takes_colors
from horovod.runner.display.lines import LineSplitter, Piece
from horovod.runner.display.output import Outlet, OutputFile, RankStream, outlets, rank_directory
from horovod.runner.display.screen import Screen


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
    stream = RankStream(3, "stderr", OutputFile(tmp_path / "f"))
    assert stream.feed(b"one\ntw") == b"[3]<stderr>:one\n"
    assert stream.feed(b"o\rthree") == b"[3]<stderr>:two\r[3]<stderr>:three"
    assert stream.finish() == b"\r[3]<stderr>:three\n"
    assert list(stream.tail) == [b"one", b"three"]
    assert (tmp_path / "f").read_bytes() == b"one\ntwo\rthree"


def test_timestamp() -> None:
    stream = RankStream(0, "stdout", style=LineStyle(clock=lambda: 86400.0 * 365))
    prefix, _, rest = stream.feed(b"x\n").partition(b"[0]<stdout>:")
    assert rest == b"x\n"
    assert prefix.startswith((b"Fri Jan  1", b"Thu Dec 31"))
    assert prefix.endswith((b"1971", b"1970"))


def test_what_is_not_shown_is_kept(tmp_path: Path) -> None:
    stream = RankStream(3, "stderr", OutputFile(tmp_path / "f"), LineStyle(shown=False))
    assert stream.feed(b"one\rtwo\nthree") + stream.finish() == b""
    assert list(stream.tail) == [b"two", b"three"]
    assert (tmp_path / "f").read_bytes() == b"one\rtwo\nthree"


def test_each_rank_has_its_color() -> None:
    line = {rank: RankStream(rank, "stdout", style=LineStyle(colored=True)).feed(b"x\n") for rank in range(10)}
    assert line[0] == b"\x1b[36m[0]<stdout>:\x1b[0mx\n"
    assert len({text.partition(b"[" + str(rank).encode() + b"]")[0] for rank, text in line.items()}) == 10
    assert RankStream(10, "stdout", style=LineStyle(colored=True)).feed(b"x\n").startswith(b"\x1b[36m")


@pytest.mark.parametrize(
    ("environ", "on_terminal", "colored"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "0"}, True, False),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
    ],
)
def test_where_colors_are_written(environ: dict[str, str], on_terminal: bool, colored: bool) -> None:
    assert takes_colors(environ, on_terminal) is colored


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


class Cell(io.TextIOBase):
    """A stream as notebooks have it: shows what is written to it, and names the descriptor of the kernel's output."""

    def __init__(self, fd: int) -> None:
        self.fd, self.text = fd, ""

    def fileno(self) -> int:
        return self.fd

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


def test_what_stands_in_for_a_stream_gets_the_text_and_not_the_descriptor_that_it_names() -> None:
    master, slave = os.openpty()
    cell = Cell(slave)
    outlet = outlets(cell, Cell(slave))["stdout"]
    outlet.put("█ü\n".encode())
    outlet.write_some()
    assert cell.text == "█ü\n" and not select.select([master], [], [], 0)[0]
    assert not standard_streams.is_terminal(cell) and standard_streams.is_read(cell, 0)
    os.close(slave)
    os.close(master)


def test_a_stand_in_that_cannot_be_written_ends_no_job() -> None:
    stream = io.StringIO()
    outlet = Outlet(stream, "standard output")
    stream.close()
    outlet.put(b"x\n")
    assert outlet.problem.startswith("standard output cannot be written: ")


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


def on_a_terminal(typing: bool, *texts: tuple[bytes, object]) -> bytes:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as stream:
        outlet = Outlet(stream, typing=typing)
        for text, owner in texts:
            outlet.put(text, owner)
        outlet.finish_line()
        outlet.write_some()
    try:
        return os.read(master, 1000)
    finally:
        os.close(master)


def test_where_a_person_types_others_wipe_the_line_away() -> None:
    texts = ((b"0:10%", 0), (b"1:x\n", 1), (b"\r0:20%", 0), (b"\r\x1b[K", None))
    assert on_a_terminal(True, *texts) == b"0:10%\r\x1b[K1:x\r\n0:20%\r\x1b[K\x1b[K"


def test_on_a_terminal_each_line_under_way_keeps_its_place() -> None:
    written = on_a_terminal(
        False, (b"0:10%", (0, "o")), (b"1:5%", (1, "o")), (b"hello\n", None), (b"\r0:20%", (0, "o"))
    )
    assert screen_of(written) == ["hello", "0:20%", "1:5%"]


def screen_of(written: bytes) -> list[str]:
    """What a terminal shows after these bytes: the movements that `Screen` makes, and no others."""
    lines, row, column = [""], 0, 0
    for part in re.findall(rb"\x1b\[[?0-9]*[a-zA-Z]|\r\n|[\r\n]|[^\x1b\r\n]+", written):
        if part in (b"\n", b"\r\n"):
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part == b"\r":
            column = 0
        elif part.endswith(b"A"):
            row -= int(part[2:-1])
        elif part == b"\x1b[J":
            lines[row:] = [lines[row][:column]]
        elif not part.startswith(b"\x1b"):
            lines[row] = lines[row][:column] + part.decode() + lines[row][column + len(part) :]
            column += len(part)
    return [line for line in lines if line]


def test_progress_bars_stay_one_line_per_rank() -> None:
    screen = Screen()
    streams = [RankStream(rank, "stderr") for rank in range(3)]
    written = b""
    for step in range(1, 5):
        for rank in (2, 0, 1):
            written += screen.put(streams[rank].feed(b"\r%d/4 " % step), (rank, "stderr"), 24)
        written += screen.put(b"[0]<stdout>:epoch %d\n" % step, (0, "stdout"), 24)
    bars = [f"[{rank}]<stderr>:4/4 " for rank in range(3)]
    epochs = [f"[0]<stdout>:epoch {step}" for step in range(1, 5)]
    assert screen_of(written) == [*epochs, *bars]
    written += screen.put(streams[1].feed(b"\ndone\n"), (1, "stderr"), 24) + screen.finish()
    assert screen_of(written) == [*epochs, bars[1], "[1]<stderr>:done", bars[0], bars[2]]


def test_lines_under_way_leave_room_and_do_not_move_the_cursor() -> None:
    screen = Screen()
    for rank in range(30):
        written = screen.put(b"%02d" % rank, (rank, "stderr"), 10)
    assert written.count(b"\n") == 8
    assert b"\x1b[2A" not in Screen().put(b"inner\x1b[2A", (0, "stderr"), 24)


@pytest.mark.parametrize(
    ("environ", "moves"),
    [({}, True), ({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"JPY_PARENT_PID": "1"}, False)],
)
def test_a_terminal_that_does_not_move_its_cursor_is_not_asked_to(environ: dict[str, str], moves: bool) -> None:
    assert moves_cursor(environ) == moves
    master, slave = os.openpty()
    with open(slave, "w") as stream:
        outlet = Outlet(stream, moves=moves)
        outlet.put(b"0:20%", 0)
        outlet.put(b"1:x\n", 1)
        outlet.finish_line()
        outlet.write_some()
        outlet.close()
    assert (b"\x1b" in os.read(master, 1000)) == moves
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


@pytest.mark.parametrize("read_s", [0.0, 5.0], ids=["that nobody reads", "that is slow"])
def test_a_terminal_that_others_get_wraps_its_lines(read_s: float) -> None:
    master, slave = os.openpty()
    got = b""

    def read() -> None:
        nonlocal got
        while select.select([master], [], [], 0.3)[0]:
            got += os.read(master, 1 << 12)

    with open(slave, "w") as stream:
        outlet = Outlet(stream)
        outlet.put(b"\r" + b"#" * 100_000, (0, "stderr"))
        outlet.write_some()
        assert outlet.waiting
        if read_s:
            reader = threading.Thread(target=read)
            reader.start()
            outlet.settle(read_s)
            reader.join()
            assert not outlet.waiting and got.count(b"#") == 100_000
        else:
            outlet.give_up()
            read()
        assert got.endswith(b"\x1b[?7h\r\n")
    os.close(master)


def test_a_terminal_that_nobody_reads_holds_nobody_up() -> None:
    master, slave = os.openpty()
    with open(slave, "w") as stream:
        outlet = Outlet(stream)
        outlet.put(b"x" * 99 + b"\n" + b"y" * 500_000 + b"\n")
        writer = threading.Thread(target=lambda: [outlet.write_some() for _ in range(50)], daemon=True)
        writer.start()
        writer.join(20)
        held_up = writer.is_alive()
        while select.select([master], [], [], 0.3)[0]:
            os.read(master, 1 << 16)
        writer.join()
        assert outlet.waiting and not held_up
        outlet.close()
    os.close(master)
