"""The import of JAX, or the error that says what is missing. The package imports this before everything else."""

from __future__ import annotations

from horovod._core.frameworks import require

require("jax", "JAX", "horovod.jax")
