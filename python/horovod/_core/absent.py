"""Names that programs for upstream import and that do not exist here: the error says what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Callable, NoReturn

__all__ = ["absent_names"]


def absent_names(module: str, instead: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module that lacks some names.

    Args:
        module: its name.
        instead: absent name -> what to use, as the end of "Use ...".
    """

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 - becomes the module's
        if name not in instead:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        # Not an AttributeError, whose text an import statement would replace by its own.
        raise ImportError(f"{module}.{name} does not exist here. Use {instead[name]}.", name=module)

    return __getattr__
