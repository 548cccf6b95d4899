"""The launcher: `horovodrun` (`cli`) and `horovod.run` (`function`).

Plain Python; it imports neither a framework nor the core, and of `horovod._core` only the settings and the errors.
"""

from __future__ import annotations

from horovod.runner.function import run

__all__ = ["run"]
