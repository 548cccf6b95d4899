"""Accelerate and Hugging Face's `Trainer` on two ranks: `make test-lightning`. By its name no other run of the tests
collects this file."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import horovodrun, python, run_well
from jobs.cases import CaseJob, cases_of

WORKER = Path(__file__).parent / "workers" / "huggingface_worker.py"
JOB = CaseJob(WORKER, timeout_s=240)


@pytest.mark.parametrize("case", cases_of(WORKER))
def test_libraries_take_the_group_that_is_there(case: str) -> None:
    JOB.check(case)


# Accelerate's own test of a machine's set-up.
_OWN_TEST = """
import horovod.torch.distributed
horovod.torch.distributed.init_process_group()
from accelerate.test_utils.scripts.test_script import main
main()
"""
_LAUNCHERS = {
    "horovodrun": horovodrun(2),
    "torchrun": python("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"),
    # Alone it starts one process on a CPU.
    "accelerate launch": horovodrun(2, "-m", "accelerate.commands.launch", "--cpu"),
}


@pytest.mark.parametrize("launcher", _LAUNCHERS)
def test_accelerates_own_test(launcher: str, tmp_path: Path) -> None:
    script = tmp_path / "own_test.py"
    script.write_text(_OWN_TEST)
    output = run_well([*_LAUNCHERS[launcher], str(script)], {"HF_HUB_OFFLINE": "1"}, patience_s=280)
    assert "Num processes: 2" in output and "Training yielded the same results" in output, output
