"""The frameworks, and what an adapter's package asks for first: that its framework is installed. Imports none."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

__all__ = ["FRAMEWORKS", "require"]

# The package that a framework's users import, whose adapter is horovod.PACKAGE -> what people call it.
FRAMEWORKS: Final = {
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "mxnet": "MXNet",
    "jax": "JAX",
    "numpy": "NumPy",
    "keras": "Keras",
}


def require(package: str, title: str, user: str) -> Any:
    """The framework, imported.

    Args:
        package: "torch"; pip knows it by the same name.
        title: what people call it.
        user: the module of ours that needs it.

    Raises:
        ModuleNotFoundError: it is not installed. What goes wrong inside a framework that is installed comes through as
            it is.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
    raise ModuleNotFoundError(
        f"{user} needs {title}, which this Python ({sys.executable}) does not have; pip install {package}",
        name=package,
    )
