"""The side of the ranks of `cases`: runs the cases of a worker script one after the other, and tells how each went.

After a failure the rank ends, so that the others do not wait for it.
"""

import faulthandler
import os
import sys
import traceback
import unittest

from .report import report


def run_cases(names, hvd, before_each=lambda: None, **init):
    """Runs those of the script's functions (its `globals()`) that the test asks for, between init and shutdown."""
    # Shows where a rank hangs, before the job is ended.
    faulthandler.dump_traceback_later(float(os.environ["TEST_TIMEOUT_S"]) / 2, repeat=True)
    hvd.init(**init)
    for name in os.environ["TEST_CASES"].split(","):
        before_each()
        try:
            names[name]()
        except unittest.SkipTest as missing:
            report("case", case=name, error=None, skipped=str(missing))
            continue
        except BaseException:
            report("case", case=name, error=traceback.format_exc())
            traceback.print_exc()
            sys.exit(1)
        report("case", case=name, error=None)
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
