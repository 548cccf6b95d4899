"""Lightning on two ranks: `make test-lightning`. No other run of the tests collects this file, by its name: Lightning
is not in the environment of the rest."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from jobs import ROOT, horovodrun, run, run_well
from jobs.cases import CaseJob, cases_of

WORKER = Path(__file__).parent / "workers" / "lightning_worker.py"
CASES = cases_of(WORKER)
JOBS = {
    package: CaseJob(WORKER, environ={"TEST_LIGHTNING": package}, timeout_s=240)
    for package in ("lightning", "pytorch_lightning")
    if importlib.util.find_spec(package) is not None
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("package", JOBS)
def test_trainer_on_two_ranks(package: str, case: str) -> None:
    JOBS[package].check(case)


_LOSES_A_RANK = """
import os, signal, time
import torch, lightning.pytorch as pl
import horovod.lightning, horovod.torch as hvd
from jobs.report import report

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        self.begun = time.monotonic()
        if number == 3 and hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

net = Net()
quiet = dict(enable_progress_bar=False, enable_model_summary=False, logger=False, enable_checkpointing=False)
try:
    pl.Trainer(strategy="horovod", accelerator="cpu", devices=1, max_epochs=1, **quiet).fit(net, torch.randn(16, 4, 4))
except Exception as error:
    report("lost", text=str(error), seconds=time.monotonic() - net.begun)
    raise
"""


def test_a_killed_rank_is_named_to_the_others() -> None:
    done = run(horovodrun(2, "-c", _LOSES_A_RANK))
    (lost,) = done.of("lost")
    assert "rank 1" in lost["text"] and "died" in lost["text"] and lost["seconds"] < 5, str(done)
    assert done.code != 0


def test_the_example_learns(tmp_path: Path) -> None:
    """And rank 0 alone writes its checkpoint."""
    output = run_well(horovodrun(2, ROOT / "examples/lightning/digits.py", "--checkpoints", tmp_path), patience_s=240)
    (line,) = [line for line in output.splitlines() if "ranks:" in line and "accuracy" in line]
    assert "2 ranks: 92 steps" in line and float(line.rpartition(" ")[2]) > 0.9, line
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".ckpt"]
