"""The modules of upstream that are not in this version: what each lacks, and what to do instead.

Their packages exist only to say so; `horovod.common.util` and `horovodrun --check-build` ask here too, because a
package that can be found is not one that can be used. Imports nothing.
"""

from __future__ import annotations

from typing import Final

# Module -> (what cannot be done, remedy).
MISSING: Final[dict[str, tuple[str, str]]] = {
    "horovod.jax": (
        "JAX has no operations of its own yet",
        "train with Keras on the JAX backend (horovod.keras), or reduce NumPy arrays with horovod.numpy",
    ),
    "horovod.mxnet": ("there are no operations for MXNet", "reduce NumPy arrays with horovod.numpy"),
    "horovod.ray": ("jobs cannot be started on a Ray cluster", "start the same job with horovodrun"),
    "horovod.spark": (
        "jobs cannot be started on a Spark cluster",
        "start the same job with horovodrun; for a data service: horovodrun -np 4 python -m "
        "horovod.tensorflow.data.compute_worker CONFIGFILE",
    ),
}


def missing(module: str) -> ModuleNotFoundError:
    """The error for the import of one of them."""
    fact, remedy = MISSING[module]
    return ModuleNotFoundError(f"{module} is not in this version: {fact}. Remedy: {remedy}.", name=module)
