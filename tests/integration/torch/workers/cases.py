"""Runs the cases of a worker script of this folder inside a rank."""

import jobs.case_runner
import torch
from jobs.case_runner import expect_raises

import horovod.torch as hvd

__all__ = ["expect_raises", "run_cases"]


def run_cases(names):
    torch.set_num_threads(1)
    jobs.case_runner.run_cases(names, hvd, lambda: torch.manual_seed(1234))
