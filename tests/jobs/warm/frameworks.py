"""What the servers of warm ranks import, and which variables an import may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Framework:
    """What a server has imported.

    Attributes:
        modules: in this order.
        environ: further variables, which its ranks must have too.
    """

    modules: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


# Horovod itself is in none of them: each rank imports it, in its own environment.
_JAX = {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # compiling is most of what small jobs do
FRAMEWORKS = {
    "numpy": Framework(("numpy", "ml_dtypes")),
    "torch": Framework(("numpy", "ml_dtypes", "torch")),
    "torch with optimizers": Framework(("numpy", "ml_dtypes", "torch", "torch._dynamo")),  # which the first one imports
    "tensorflow": Framework(("numpy", "ml_dtypes", "tensorflow")),
    "keras on tensorflow": Framework(("tensorflow", "keras"), {"KERAS_BACKEND": "tensorflow"}),
    "keras on torch": Framework(("torch", "keras"), {"KERAS_BACKEND": "torch"}),
    "keras on jax": Framework(("jax", "keras"), _JAX),
    "keras on legacy": Framework(("tensorflow", "tf_keras"), {"TF_USE_LEGACY_KERAS": "1"}),
}

_PREFIXES = ("CUDA_", "JAX_", "KERAS_", "KMP_", "LD_", "MKL_", "OMP_", "OPENBLAS_", "PYTHON", "TF_", "TORCH", "XLA_")
_WITHOUT_EFFECT = ("PYTHONFAULTHANDLER", "PYTHONUNBUFFERED", "TF_CPP_MIN_LOG_LEVEL")


def read_by_imports(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that could change what an import does. Those that each server sets itself are left out."""
    return {
        name: value for name, value in environ.items() if name.startswith(_PREFIXES) and name not in _WITHOUT_EFFECT
    }
