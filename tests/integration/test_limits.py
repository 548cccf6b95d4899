"""A start under a limit of the system: the rank that meets it names the limit, the others name that rank."""

from __future__ import annotations

from jobs import horovodrun, run

_PROGRAM = """
import os, resource
import horovod.numpy as hvd
if os.environ["HOROVOD_RANK"] == "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    hvd.init()
except RuntimeError as error:
    print("RANK", os.environ["HOROVOD_RANK"], type(error).__name__, error)
"""


def test_a_file_size_limit_is_told_on_every_rank() -> None:
    ended = run(horovodrun(2, "-c", _PROGRAM))
    told = sorted(line[line.index("RANK") :] for line in ended.stdout.splitlines() if "RANK" in line)
    assert len(told) == 2, str(ended)
    assert told[0].startswith("RANK 0 ResourceError No shared memory: ") and "ulimit -f" in told[0]
    assert told[1].startswith("RANK 1 PeerLostError Rank 0 ")
