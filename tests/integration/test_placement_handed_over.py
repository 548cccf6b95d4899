"""Ranks in processes that no launcher has started as ranks: placements that a program hands over, and ranks of several
parents that a job id joins."""

from __future__ import annotations

import json
import pathlib

import pytest
from jobs import Ended, python, run

# Starts two processes and hands each its placements, in two jobs one after the other, through a pipe.
_PROGRAM = """
import os, pickle, socket, subprocess, sys
from horovod._net.clusters.placement import MeetingPoint, Placement
from horovod._net.secret import new_secret

kind, rank_program = sys.argv[1:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]

def placements(job):
    if kind == "one host":
        return [Placement(rank, 2, rank, 2, 0, 1, "a test", job, secret=secret) for rank in range(2)]
    if kind == "no secret":
        return [Placement(rank, 2, rank, 2, 0, 1, "a test", job) for rank in range(2)]
    point = MeetingPoint("127.0.0.1", port, "a test", job, settable=False)
    unplaced = (0, 1, 0, 1, "a test", job)
    more = {"secret": secret, "meeting_point": point, "unplaced": True}
    return [Placement(rank, 2, *unplaced, **more) for rank in range(2)]

secret = new_secret()
jobs = [placements("first " + secret.hex()[:8]), placements("second " + secret.hex()[:8])[::-1]]
ranks = []
for _ in range(2):
    ranks.append(subprocess.Popen([sys.executable, "-c", rank_program], stdin=subprocess.PIPE))
for number, process in enumerate(ranks):
    process.stdin.write(pickle.dumps([job[number] for job in jobs]))
    process.stdin.close()
sys.exit(max(process.wait() for process in ranks))
"""

_GIVEN = """
import os, pickle, sys, threading
import numpy as np
import horovod.numpy as hvd
from horovod._core.life import given_placement
from jobs.report import report

def train(life):
    numbers = [hvd.rank(), hvd.size(), hvd.local_size(), hvd.cross_size()]
    total = float(hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
    report("life", life=life, numbers=numbers, total=total)
    hvd.shutdown()

first, second = pickle.load(sys.stdin.buffer)
given_placement.hand_over(first)
thread = threading.Thread(target=hvd.init)
thread.start()
thread.join()
train("first")
hvd.init()
train("again")
given_placement.hand_over(second)
hvd.init()
train("second")
given_placement.hand_over(None)
hvd.init()
train("alone")
known = [open(f"/proc/self/{name}", "rb").read() for name in ("environ", "cmdline")]
known += [os.fsencode(name + value) for name, value in os.environ.items()]
if first.secret is not None:
    assert not any(word in text for text in known for word in (first.secret, first.secret.hex().encode()))
assert not any(name.startswith(("HOROVOD_", "_HOROVOD")) for name in os.environ if name != "HOROVOD_LIBRARY")
"""


@pytest.mark.parametrize("kind", ["one host", "no secret", "hosts found at an address"])
def test_placements_that_a_program_hands_over(kind: str) -> None:
    ended = run(python("-c", _PROGRAM, kind, _GIVEN))
    assert ended.code == 0, str(ended)
    for life in ("first", "again", "second"):
        lives = sorted((event["numbers"], event["total"]) for event in ended.of("life") if event["life"] == life)
        assert lives == [([rank, 2, 2, 1], 3.0) for rank in range(2)], life
    alone = [event["numbers"] for event in ended.of("life") if event["life"] == "alone"]
    assert alone == [[0, 1, 1, 1]] * 2


_INIT = """
import pickle, sys
import horovod.numpy as hvd
from horovod._core.life import given_placement
given_placement.hand_over(pickle.load(sys.stdin.buffer)[0])
hvd.init()
hvd.shutdown()
"""


def test_settings_without_an_effect_are_said_by_one_rank() -> None:
    ended = run(python("-c", _PROGRAM, "one host", _INIT), {"HOROVOD_CYCLE_TIMES": "3", "HOROVOD_TORUS_ALLREDUCE": "0"})
    assert ended.code == 0 and ended.stderr.count("HOROVOD_CYCLE_TIMES is not a variable") == 1, str(ended)


# Starts each rank by a parent of its own, as two shells or two daemons do, with the variables of the rank.
_PARENTS = """
import json, os, subprocess, sys
rank_program, *variables = sys.argv[1:]
parent = "import json, os, subprocess, sys; more = json.loads(sys.argv[2]); " \
    "sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]], env={**os.environ, **more}))"
parents = []
for number, more in enumerate(map(json.loads, variables)):
    place = {"RANK": number, "SIZE": 2, "LOCAL_RANK": number, "LOCAL_SIZE": 2}
    more = {**{f"HOROVOD_{name}": str(value) for name, value in place.items()}, **more}
    if "XDG_RUNTIME_DIR" in more:
        os.makedirs(more["XDG_RUNTIME_DIR"], 0o700)
    parents.append(subprocess.Popen([sys.executable, "-c", parent, rank_program, json.dumps(more)]))
sys.exit(max(process.wait() for process in parents))
"""

_RANK = """
import numpy as np
import horovod.numpy as hvd
from jobs.report import report
try:
    hvd.init()
    report("met", size=hvd.size(), total=float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]))
except RuntimeError as error:
    report("missed", text=str(error))
"""


# The longer of both bounds the start.
_SOON = {"HOROVOD_START_TIMEOUT": "6", "HOROVOD_GLOO_TIMEOUT_SECONDS": "6"}


def by_two_parents(*each: dict[str, str]) -> Ended:
    return run(python("-c", _PARENTS, _RANK, *map(json.dumps, each)))


def test_ranks_of_different_parents_meet_by_the_id_of_their_job() -> None:
    ended = by_two_parents(*[{"HOROVOD_JOB_ID": "of a test"}] * 2)
    assert [(event["size"], event["total"]) for event in ended.of("met")] == [(2, 2.0)] * 2, str(ended)


def test_without_an_id_they_hear_what_they_lack() -> None:
    ended = by_two_parents(*[_SOON] * 2)
    texts = [event["text"] for event in ended.of("missed")]
    assert len(texts) == 2, str(ended)
    assert all("Without HOROVOD_JOB_ID, only ranks that process" in text for text in texts)


def test_ranks_in_different_places_hear_of_one_another(tmp_path: pathlib.Path) -> None:
    both = {"HOROVOD_JOB_ID": "of a test", **_SOON}
    places = [str(tmp_path / name) for name in ("one", "two")]
    ended = by_two_parents(*({**both, "XDG_RUNTIME_DIR": place} for place in places))
    texts = sorted(event["text"] for event in ended.of("missed"))
    assert len(texts) == 2, str(ended)
    for text, rank, there, here in zip(texts, (0, 1), places, places[::-1]):
        assert f"Rank {rank} (pid " in text
        assert f"has come and meets in {there}/horovod instead of {here}/horovod: let all have one XDG_" in text
