"""Which Keras this process uses, decided once and as TensorFlow decides it for `tf.keras`: Keras 2 of the package
tf_keras if TF_USE_LEGACY_KERAS asks for it, else the package keras, which is Keras 2 beside TensorFlow 2.13 to 2.15.

Everything here imports `keras` from this module.
"""

from __future__ import annotations

import os
from typing import Any, Final

from horovod._core.frameworks import require

__all__ = ["KERAS_2", "keras"]


def _keras() -> Any:
    if os.environ.get("TF_USE_LEGACY_KERAS") not in ("true", "True", "1"):
        return require("keras", "Keras", "horovod.keras")
    try:
        import tf_keras
    except ImportError as cause:
        raise ImportError(
            "TF_USE_LEGACY_KERAS asks for Keras 2 of the package tf_keras, which cannot be imported here. Remedy: pip "
            "install tf_keras in the version of your TensorFlow, or unset TF_USE_LEGACY_KERAS."
        ) from cause
    return tf_keras


keras: Final[Any] = _keras()
_version: Final = tuple(int(part) for part in keras.__version__.split(".")[:2])
if _version < (2, 13):
    raise ImportError(
        f"horovod.keras needs Keras 2.13 or later, or Keras 3; keras {keras.__version__} is installed. Remedy: pip "
        "install 'keras>=3' (with TensorFlow: 2.13 or later, and the Keras that belongs to it)."
    )
KERAS_2: Final = _version < (3, 0)
