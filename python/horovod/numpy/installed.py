"""The import of NumPy, or the error that says what is missing. The package imports this before everything else."""

from __future__ import annotations

from horovod._core.frameworks import require

require("numpy", "NumPy", "horovod.numpy")
