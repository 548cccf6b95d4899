"""Tracebacks in the ranks' stderr: one of each, without Horovod's own frames."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import horovod
from horovod.runner.display.output import RankStream
from horovod.runner.display.tracebacks import KnownTracebacks, TracebackFilter
from horovod.runner.job import effective_settings, make_job
from horovod.runner.launchers.base import Surroundings
from horovod.runner.launchers.destinations import rank_streams

OWN = str(Path(horovod.__file__).resolve().parent)
LOST = f"""before
Traceback (most recent call last):
  File "train.py", line 5, in <module>
    hvd.allreduce(x)
  File "{OWN}/_core/operations/reductions.py", line 90, in allreduce
    return run(call)
           ^^^^^^^^^
  File "{OWN}/_core/life/waiting.py", line 7, in run
    raise error
horovod._core.errors.PeerLostError: rank 1 (pid 7) died
after
"""
LOST_SHORT = """before
Traceback (most recent call last):
  File "train.py", line 5, in <module>
    hvd.allreduce(x)
  ... 2 frames of Horovod itself; --verbose shows them
horovod._core.errors.PeerLostError: rank 1 (pid 7) died
after
"""
NAN = """Traceback (most recent call last):
  File "train.py", line 5, in <module>
    check(<Tensor at 0x7f01>)
ValueError: loss is nan
"""


def shortened(rank: int, known: KnownTracebacks) -> RankStream:
    stream = RankStream(rank, "stderr")
    stream.shorten_tracebacks(TracebackFilter(rank, known))
    return stream


def written(known: KnownTracebacks, rank: int, text: str, chunk: int = 1 << 16) -> str:
    stream = shortened(rank, known)
    data = text.encode()
    shown = [stream.feed(data[at : at + chunk]) for at in range(0, len(data), chunk)]
    return (b"".join(shown) + stream.finish()).decode().replace(f"[{rank}]<stderr>:", "")


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_frames_of_horovod_are_left_out_of_its_own_errors(chunk: int) -> None:
    assert written(KnownTracebacks(), 0, LOST, chunk) == LOST_SHORT


def test_one_frame_is_one() -> None:
    whole = LOST.replace(f'  File "{OWN}/_core/life/waiting.py", line 7, in run\n    raise error\n', "")
    assert "\n  ... 1 frame of Horovod itself; --verbose shows it\n" in written(KnownTracebacks(), 0, whole)


def test_frames_of_torchs_compiler_go_with_those_that_they_call() -> None:
    compiler = '  File "/lib/torch/_dynamo/eval_frame.py", line 9, in _fn\n    return fn(*args)\n'
    step = f'  File "{OWN}/torch/graphs.py", line 4, in call\n    return disabled()\n'
    own = f'  File "{OWN}/_core/operations/reductions.py"'
    assert written(KnownTracebacks(), 0, LOST.replace(own, compiler + own)) == LOST_SHORT
    whole = LOST.replace(own, step + compiler + own)
    assert written(KnownTracebacks(), 0, whole) == LOST_SHORT.replace("2 frames", "3 frames")
    users = '  File "train.py", line 5'
    assert written(KnownTracebacks(), 0, LOST.replace(users, compiler + users)) == LOST_SHORT.replace(
        users, compiler + users
    )


@pytest.mark.parametrize(
    "error",
    [
        "ModuleNotFoundError: horovod.ray is not in this version: ...",
        "ImportError: horovod.torch.mpi_ops.x does not exist here.",
        "AttributeError: module 'horovod' has no attribute 'init'",
        "KeyboardInterrupt",
    ],
)
def test_its_frames_are_left_out_of_errors_that_it_has_not_made(error: str) -> None:
    lost = "horovod._core.errors.PeerLostError: rank 1 (pid 7) died"
    assert written(KnownTracebacks(), 0, LOST.replace(lost, error)) == LOST_SHORT.replace(lost, error)


def test_frames_of_horovod_stay_where_the_error_is_not_its_own() -> None:
    text = LOST.replace("horovod._core.errors.PeerLostError: rank 1 (pid 7) died", "KeyError: 'a bug'")
    assert written(KnownTracebacks(), 0, text) == text


def test_a_traceback_that_another_rank_has_written_is_one_line() -> None:
    known = KnownTracebacks()
    assert written(known, 3, NAN) == NAN
    assert written(known, 3, NAN) == NAN  # its own again
    assert (
        written(known, 1, NAN.replace("7f01", "7f02")) == "ValueError: loss is nan (the same traceback as rank 3's)\n"
    )
    other = NAN.replace("is nan", "is inf")
    assert written(known, 1, other) == other


def test_the_last_words_of_a_rank_keep_the_whole() -> None:
    known = KnownTracebacks()
    written(known, 0, LOST)
    stream = shortened(2, known)
    stream.feed(LOST.encode())
    assert b"\n".join(stream.tail).decode() + "\n" == LOST_SHORT


@pytest.mark.parametrize("text", [NAN[:40], NAN[:100], NAN.partition("ValueError")[0], NAN[:70] + "\n" + NAN])
def test_what_is_no_whole_traceback_is_shown_as_it_is(text: str) -> None:
    whole = text if text.endswith("\n") else text + "\n"
    assert written(KnownTracebacks(), 0, text) == whole


def test_a_rank_that_is_not_shown_has_short_last_words_that_nobody_is_referred_to() -> None:
    job = make_job(effective_settings({"num_proc": 2, "shown_ranks": (1,)}, "flag", {}), ("x",), {}, "/")
    (_, hidden), (_, shown) = rank_streams(job, None, Surroundings(io.StringIO(), io.StringIO()))
    assert hidden.feed(LOST.encode()) == b""
    assert b"\n".join(hidden.tail).decode() == LOST_SHORT.rstrip()
    assert b"the same traceback" not in shown.feed(LOST.encode())


def test_a_chain_of_exceptions() -> None:
    text = NAN + "\nDuring handling of the above exception, another exception occurred:\n\n" + LOST[7:]
    short = NAN + "\nDuring handling of the above exception, another exception occurred:\n\n" + LOST_SHORT[7:]
    assert written(KnownTracebacks(), 0, text) == short


def test_an_endless_traceback_is_not_kept_back() -> None:
    stream = shortened(0, KnownTracebacks())
    frames = b"Traceback (most recent call last):\n" + b'  File "a.py", line 1, in f\n' * 3000
    assert stream.feed(frames).count(b"\n") > 2000
