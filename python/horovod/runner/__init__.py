"""The launcher: `horovodrun` (`cli`) and `horovod.run` (`function`).

Plain Python; it imports neither a framework nor the core, and of `horovod._core` only the settings, the errors and the
words for absent names. The package itself imports nothing big: `python -m horovod.runner.run_task` is a program of its
own, and Ctrl-C must find `__main__` before anything big is loaded.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from horovod.runner.import_paths import UpstreamPaths

if TYPE_CHECKING:
    from horovod.runner.function import run

__all__ = ["run"]

sys.meta_path.append(UpstreamPaths)


def __getattr__(name: str) -> object:
    if name == "run":
        from horovod.runner.function import run

        return run
    if name == "_HorovodArgs":  # where upstream has it
        launch = importlib.import_module("horovod.runner.launch")
        return getattr(launch, name)
    raise AttributeError(f"module 'horovod.runner' has no attribute {name!r}")
