"""What Spark has given the task of a rank. Used by users' functions, in their ranks or in tasks of their own."""

from __future__ import annotations

import os
import sys
from typing import Final

__all__ = ["get_available_devices"]

VARIABLE: Final = "_HOROVOD_SPARK_GPUS"  # of each rank, with commas


def get_available_devices() -> list[str]:
    """The addresses of the GPUs that Spark has given the task of this rank; empty where it has given none
    (`spark.task.resource.gpu.amount`), and outside of Spark.
    """
    told = os.environ.get(VARIABLE)
    if told is not None:
        return told.split(",") if told else []
    pyspark = sys.modules.get("pyspark")  # a task of the user's own
    context = pyspark.TaskContext.get() if pyspark else None
    gpus = context.resources().get("gpu") if context else None
    return list(gpus.addresses) if gpus else []
