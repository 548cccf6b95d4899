"""The modules of upstream that are not in this version: what each lacks, and what to do instead.

Their packages exist only to say so; `horovod.common.util` and `horovodrun --check-build` ask here too, because a
package that can be found is not one that can be used. Imports nothing.
"""

from __future__ import annotations

from typing import Final, Optional

# Module -> (what cannot be done, remedy).
MISSING: Final[dict[str, tuple[str, str]]] = {
    "horovod.spark.data_loaders": (
        "estimators read Parquet without petastorm",
        "leave the loaders out, or derive a class from horovod.spark.common.datamodule.DataModule",
    ),
}


def missing(module: str) -> ModuleNotFoundError:
    """The error for the import of one of them."""
    fact, remedy = MISSING[module]
    return ModuleNotFoundError(f"{module} is not in this version: {fact}. Remedy: {remedy}.", name=module)


class LaterModules:
    """For `sys.meta_path`: refuses those that have no package of their own to say so."""

    @staticmethod
    def find_spec(name: str, path: Optional[object] = None, target: object = None) -> None:
        """Nothing is found here.

        Raises:
            ModuleNotFoundError: the module is not in this version.
        """
        del path, target
        if name in MISSING:
            raise missing(name)
