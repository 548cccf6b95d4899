"""The program `horovodrun`, also as `python -m horovod.runner`.

It imports the launcher inside of its `try`: Ctrl-C during the imports ends it as any other Ctrl-C does, without a
traceback. It imports what a job on this machine needs, and little else: every user waits for that at every start
(tests/unit/runner/test_startup.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

_INTERRUPTED = 130  # 128 + SIGINT, as a shell says it


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs horovodrun; see `cli.main`."""
    try:
        from horovod.runner import cli

        return cli.main(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED


def program() -> NoReturn:
    """`main` as a program, which ends without tearing the interpreter down: that would take 10 ms for nothing."""
    code = main()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        sys.exit(code)  # the interpreter says that it could not
    os._exit(code)


if __name__ == "__main__":
    program()
