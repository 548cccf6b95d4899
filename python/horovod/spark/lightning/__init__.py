"""Lightning's modules as stages of Spark ML: `from horovod.spark.lightning import TorchEstimator, TorchModel`.

They are imported when they are asked for: ranks need neither them nor pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horovod.spark.lightning.estimator import TorchEstimator, TorchModel

__all__ = ["TorchEstimator", "TorchModel"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from horovod.spark.lightning import estimator

        return getattr(estimator, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
