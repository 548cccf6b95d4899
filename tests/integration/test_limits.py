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


def test_a_file_size_limit_is_reported_on_every_rank() -> None:
    ended = run(horovodrun(2, "-c", _PROGRAM))
    told = sorted(line[line.index("RANK") :] for line in ended.stdout.splitlines() if "RANK" in line)
    assert len(told) == 2, str(ended)
    assert told[0].startswith("RANK 0 ResourceError No shared memory: ") and "ulimit -f" in told[0]
    assert told[1].startswith("RANK 1 PeerLostError Rank 0 ")


def test_a_limit_of_address_space_leaves_room_for_the_program() -> None:
    """Far less than half of the memory, of which the shared tensors would else take address space for each rank."""
    program = (
        "import horovod.numpy as hvd, numpy as np; hvd.init(); print('SUM', hvd.allreduce(np.ones(1), op=hvd.Sum))"
    )
    limited = f'ulimit -v {4 << 20}; exec "$@"'
    ended = run(["sh", "-c", limited, "sh", *horovodrun(2, "-c", program)])
    assert ended.code == 0 and ended.stdout.count("SUM [2.]") == 2, str(ended)
