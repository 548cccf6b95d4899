"""The backend "horovod" of torch.distributed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import horovodrun, python, run
from jobs.cases import CaseJob, cases_of

WORKERS = Path(__file__).parent / "workers"
WORKER = WORKERS / "distributed_worker.py"
PARALLELISM = WORKERS / "parallelism_worker.py"
OF_FOUR = [case for case in cases_of(WORKER) if case.startswith("case_on_four_ranks")]
OF_TWO = [case for case in cases_of(WORKER) if case not in OF_FOUR]
JOB = CaseJob(WORKER, cases=OF_TWO, warm="torch with optimizers")
JOB_OF_PARALLELISM = CaseJob(PARALLELISM, warm="torch with optimizers")
JOB_OF_FOUR = CaseJob(WORKER, ranks=4, cases=OF_FOUR, warm="torch with optimizers")


@pytest.mark.parametrize("case", OF_TWO)
def test_torch_takes_it(case: str) -> None:
    JOB.check(case)


@pytest.mark.parametrize("case", cases_of(PARALLELISM))
def test_training_in_parallel(case: str) -> None:
    JOB_OF_PARALLELISM.check(case)


@pytest.mark.parametrize("case", OF_FOUR)
def test_on_four_ranks(case: str) -> None:
    JOB_OF_FOUR.check(case)


# Starts two ranks of torch.distributed, as torch.multiprocessing.spawn does: no launcher says who they are.
_STARTS_RANKS = """
import os, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    words = [sys.executable, "-c", sys.argv[1], os.path.join(folder, "store")]
    ranks = [subprocess.Popen([*words, str(rank)]) for rank in range(2)]
    sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
_RANK = """
import os, signal, sys, time
import torch, torch.distributed as dist
import horovod.torch as hvd
import horovod.torch.distributed
from jobs.report import report

def join(life):
    dist.init_process_group("horovod", init_method=f"file://{sys.argv[1]}{life}", rank=int(sys.argv[2]), world_size=2)

for life in range(2):
    join(life)
    total = torch.ones(1)
    dist.all_reduce(total)
    report("life", total=total.item(), local=hvd.local_size(), rank=hvd.rank())
    if life == 0:
        dist.destroy_process_group()
        assert not hvd.is_initialized()
if dist.get_rank():
    os.kill(os.getpid(), signal.SIGKILL)
begun = time.monotonic()
try:
    dist.all_reduce(torch.ones(1))
except hvd.HorovodInternalError as error:
    report("lost", text=str(error), seconds=time.monotonic() - begun)
"""


def test_ranks_that_no_launcher_started_meet_by_the_store_and_learn_who_is_lost() -> None:
    done = run(python("-c", _STARTS_RANKS, _RANK))
    lives = [event for event in done.events if event["event"] == "life"]
    assert len(lives) == 4 and all(life["total"] == 2.0 and life["local"] == 2 for life in lives), str(done)
    (lost,) = [event for event in done.events if event["event"] == "lost"]
    assert "rank 1" in lost["text"] and lost["seconds"] < 5


def test_another_rank_than_the_launchers_is_refused() -> None:
    program = """
import torch.distributed as dist, horovod.torch as hvd, horovod.torch.distributed
hvd.init()
try:
    dist.init_process_group("horovod", store=dist.HashStore(), rank=1, world_size=2)
except ValueError as error:
    print(error)
"""
    done = run(python("-c", program))
    assert "was given rank 1 of 2; Horovod knows this process as rank 0 of 1" in str(done)


_LOSES_A_RANK_IN_DDP = """
import os, signal, time
import torch, horovod.torch as hvd, horovod.torch.distributed
from jobs.report import report

horovod.torch.distributed.init_process_group()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
if hvd.rank():
    os.kill(os.getpid(), signal.SIGKILL)
begun = time.monotonic()
try:
    model(torch.ones(2, 4)).sum().backward()
except Exception as error:
    report("lost", text=str(error), seconds=time.monotonic() - begun)
    raise
"""


def test_ddp_learns_which_rank_is_lost() -> None:
    """Its C++ waits for futures."""
    done = run(horovodrun(2, "-c", _LOSES_A_RANK_IN_DDP))
    (lost,) = [event for event in done.events if event["event"] == "lost"]
    assert "rank 1" in lost["text"] and "died" in lost["text"] and lost["seconds"] < 5
