"""The program `horovodrun`, also as `python -m horovod.runner`.

It imports the launcher inside of its `try`: Ctrl-C during the imports ends it as any other Ctrl-C does, without a
traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Optional

_INTERRUPTED = 130  # 128 + SIGINT, as a shell says it


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs horovodrun; see `cli.main`."""
    try:
        from horovod.runner import cli

        return cli.main(argv)
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
