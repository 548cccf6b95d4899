"""Runs the cases of a worker script of this folder inside a rank."""

import datetime
import os
import random

import jobs.case_runner
import torch
from jobs.case_runner import expect_raises

import horovod.torch as hvd
from horovod.torch.gradients import reducer

__all__ = ["expect_raises", "run_cases"]


def run_cases(names):
    """Whether gradients are reduced during the backward pass or after it depends on the machine's cores. Here it is
    drawn for each case and rank: ranks may differ."""
    seed = os.environ.get("HVD_TEST_SEED") or str(datetime.date.today().toordinal())
    draws = None

    def before_each():
        nonlocal draws
        draws = draws or random.Random(f"{seed}/{hvd.rank()}")
        overlaps = draws.random() < 0.5
        reducer.overlap_can_pay = lambda current: overlaps
        torch.manual_seed(1234)

    torch.set_num_threads(1)
    jobs.case_runner.run_cases(names, hvd, before_each)
