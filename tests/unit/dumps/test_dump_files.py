"""A dump as text, as files, and the stacks of a rank that can tell no more."""

from __future__ import annotations

import contextlib
import json
import os
import random
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from dump_examples import WAITING, allreduce, at, dump
from hypothesis import given, settings
from hypothesis.strategies import randoms

from horovod._dumps import files, paths, readable
from horovod._dumps.compare import compare
from horovod._dumps.shortened import shortened
from horovod._dumps.stacks import from_faulthandler, owner, users_frame
from horovod._dumps.values import HOROVOD, OTHER, USER, Frame, from_json, to_json


def test_there_and_back() -> None:
    one = dump(3, at(57, "validate", WAITING), allreduce("w"), untold=2, finished=(allreduce("v"),))
    assert from_json(to_json(one)) == one


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "pending": 3}', "null", "[" * 10**5]
)
def test_what_is_no_dump(text: str) -> None:
    with pytest.raises(ValueError):
        from_json(text)


def test_a_part_of_a_dump_is_none() -> None:
    whole = json.loads(to_json(dump(3, at(57, "validate"), allreduce("w"))))
    for name in whole:
        with pytest.raises(ValueError):
            from_json(json.dumps({key: value for key, value in whole.items() if key != name}))


@settings(max_examples=300)
@given(choose=randoms(use_true_random=True))
def test_damaged_dumps_are_whole_or_refused(choose: random.Random) -> None:
    one = dump(3, at(57, "validate", WAITING), allreduce("w"), finished=(allreduce("v"),))
    told: Any = json.loads(to_json(one))
    for _ in range(choose.randrange(1, 4)):
        place = told
        while True:  # anywhere in it, down to a leaf
            key = choose.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], (dict, list)) or not place[key] or choose.random() < 0.2:
                break
            place = place[key]
        place[key] = choose.choice((None, True, -1, 1.5, float("inf"), "x", "\ud800", [], [[]], {}, {"a": 1}, 10**30))
    try:
        found = from_json(json.dumps(told))
    except ValueError:
        return
    assert from_json(to_json(found)) == found
    readable.all_ranks(compare({3: found}, {0: "stopped"}, {0: "a", 3: "b"}), {3: found})


@settings(max_examples=200)
@given(choose=randoms(use_true_random=True))
def test_damaged_bytes_are_a_dump_or_refused(choose: random.Random) -> None:
    data = bytearray(to_json(dump(3, at(57, "validate", WAITING), allreduce("w"))).encode())
    for _ in range(choose.randrange(1, 4)):
        data[choose.randrange(len(data))] = choose.randrange(256)
    with contextlib.suppress(ValueError):
        from_json(bytes(data).decode())


def test_a_dump_for_a_narrow_way() -> None:
    deep = tuple(Frame("/job/train.py", line, "again", USER) for line in range(200))
    one = dump(3, deep, *(allreduce(f"w{number}") for number in range(100)), finished=(allreduce("v"), allreduce("u")))
    lengths, least = [], 0
    for limit in (1 << 17, 20000, 6000, 3000, 10):
        text = shortened(one, limit)
        if text is None:
            break
        found = from_json(text.decode())
        assert len(text) <= limit
        assert found.main_thread[-1] == deep[-1]
        assert len(found.pending) + found.untold == 100
        lengths.append((len(found.main_thread), len(found.pending)))
        least = len(text)
    assert lengths == [(200, 100), (20, 20), (20, 20), (20, 0)] and least > 1000
    assert text is None


def test_text_for_people() -> None:
    text = readable.one_rank(dump(3, at(57, "validate", WAITING), allreduce("w"), finished=(allreduce("v"),)))
    assert "Rank 3 of 4 (host, pid 103)" in text
    assert "  waits for allreduce 'w' (float32 3) for 61.0 s\n" in text
    assert "    train.py:57, in validate()\n" in text
    assert text.index("Main thread") < text.index("Thread 'other'")


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        paths.make_directory(tmp_path / "new")
        path = paths.dump_file(tmp_path / "new", 1)
        files.write(path, "old")
        files.write(path, to_json(dump(1, ())))
        os.close(paths.open_stacks_file(paths.stacks_file(tmp_path, 1, 7)))
        os.close(paths.open_own_pipe(paths.ask_pipe(tmp_path, 1)))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    for each in (path, paths.stacks_file(tmp_path, 1, 7), paths.ask_pipe(tmp_path, 1)):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert [each.name for each in (tmp_path / "new").iterdir()] == [path.name]  # no draft is left
    assert paths.find_stacks_file(tmp_path, 1) == (paths.stacks_file(tmp_path, 1, 7), 7)
    assert paths.find_stacks_file(tmp_path, 11) is None


def test_dumps_of_all_ranks(tmp_path: Path) -> None:
    files.write(paths.dump_file(tmp_path, 0), to_json(dump(0, ())))
    files.write(paths.dump_file(tmp_path, 1), "broken")
    files.write(paths.dump_file(tmp_path, 2), to_json(dump(2, ())))
    os.utime(paths.dump_file(tmp_path, 2), (1, 1))
    dumps, absent = files.read_dumps(tmp_path, range(4), since_s=100.0)
    assert list(dumps) == [0]
    assert absent[1].startswith("it cannot be read: ")
    assert absent[2] == absent[3] == "it has written none"


def test_pipes(tmp_path: Path) -> None:
    assert not paths.ask(tmp_path, 1)
    fd = paths.open_own_pipe(paths.ask_pipe(tmp_path, 1))
    assert paths.ask(tmp_path, 1)
    assert os.read(fd, 9) == b"?"
    for _ in range(100_000):  # a full pipe holds nobody up
        if not paths.ask(tmp_path, 1):
            break
    os.close(fd)
    assert not paths.ask(tmp_path, 1)  # the rank is gone
    assert not paths.tell(tmp_path, 1)  # no launcher listens


def test_whose_code() -> None:
    assert owner(os.__file__) == OTHER
    assert owner("/usr/lib/python3/site-packages/torch/optim.py") == OTHER
    assert owner("<frozen runpy>") == OTHER
    assert owner(paths.__file__) == HOROVOD
    assert owner("/job/train.py") == owner("train.py") == USER
    assert users_frame(at(57, "validate", WAITING)) == at(57, "validate")[1]


def test_stacks_from_c() -> None:
    text = (
        'Thread 0x00007f01 [loader] (most recent call first):\n  File "/job/data.py", line 3 in get\n\n'
        "Current thread 0x00007f02 (most recent call first):\n"
        '  File "/job/train.py", line 57 in validate\n  File "/job/train.py", line 90 in <module>\nrubbish\n'
    )
    loader, main = from_faulthandler(text)
    assert (loader.name, loader.main, main.main) == ("loader", False, True)
    assert [(frame.line, frame.function) for frame in main.frames] == [(90, "<module>"), (57, "validate")]
    assert from_faulthandler("") == from_faulthandler('  File "x", line 1 in f') == ()
    assert from_faulthandler('Thread 0x1 (most recent call first):\n  File "x", line 1 in f')[0].main


def test_drafts_of_killed_processes_are_removed(tmp_path: Path) -> None:
    for name, age_s in ((".dump-old", 4000), (".dump-new", 60), ("dump.rank.0.json", 4000), (".dumps", 4000)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    files.remove_old_drafts(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".dump-new", ".dumps", "dump.rank.0.json"]
