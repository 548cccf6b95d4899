"""Runs the cases of a worker script inside a rank, one after the other, and notes how each went.

A worker script defines functions `case_...` and ends with `run_cases(globals())`. Every rank writes a line per case to
a file of its own, which `torch_job.py` reads. After a failure the rank ends, so that the others do not wait for it.
"""

import faulthandler
import json
import os
import sys
import time
import traceback

import torch

import horovod.torch as hvd


def run_cases(names):
    wanted = os.environ["TEST_CASES"].split(",")
    # Shows where a rank hangs, before the job is ended.
    faulthandler.dump_traceback_later(float(os.environ["TEST_TIMEOUT_S"]) / 2, repeat=True)
    torch.set_num_threads(1)
    hvd.init()
    with open(
        os.path.join(os.environ["TEST_RESULTS"], f"rank.{os.environ.get('HOROVOD_RANK', '0')}"), "w", buffering=1
    ) as results:
        for name in wanted:
            torch.manual_seed(1234)
            start = time.monotonic()
            try:
                names[name]()
            except BaseException:
                results.write(json.dumps({"case": name, "error": traceback.format_exc()}) + "\n")
                traceback.print_exc()
                sys.exit(1)
            results.write(json.dumps({"case": name, "error": None, "seconds": time.monotonic() - start}) + "\n")
    hvd.shutdown()


def expect_raises(kind, function, *words):
    """Calls the function, which must raise `kind` with all the words in its message."""
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
