"""What an adapter's package asks for first: that its framework is installed. Used by `horovod.torch`,
`horovod.tensorflow`, `horovod.keras` and `horovod.numpy`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["require"]


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
