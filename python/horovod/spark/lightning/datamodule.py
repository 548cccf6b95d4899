"""The data modules of Lightning's `TorchEstimator`, under the names that programs know."""

from __future__ import annotations

from horovod.spark.common.datamodule import (
    DataModule,
    NVTabularDataModule,
    ParquetDataModule,
    PetastormDataModule,
)

__all__ = ["DataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]
