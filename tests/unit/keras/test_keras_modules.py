"""Names, signatures and defaults of `horovod.keras` and `horovod.tensorflow.keras`, which existing scripts rely on."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

keras = pytest.importorskip("keras", reason="Keras is not installed.")

import horovod.keras as hvd  # noqa: E402

DISTRIBUTED = (
    "optimizer, name=None, device_dense='', device_sparse='', compression=Compression.none, sparse_as_dense=False, "
    "gradient_predivide_factor=1.0, op=Average, "
)
SIGNATURES = {
    "DistributedOptimizer": DISTRIBUTED + "num_groups=0, groups=None, "
    "backward_passes_per_step=1, average_aggregated_gradients=False",
    "PartialDistributedOptimizer": DISTRIBUTED
    + "backward_passes_per_step=1, average_aggregated_gradients=False, groups=None, process_set=SET, "
    "local_layers=None, scale_local_gradients=True",
    "broadcast_global_variables": "root_rank",
    "allreduce": "value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None, "
    "compression=Compression.none",
    "allgather": "value, name=None",
    "broadcast": "value, root_rank, name=None",
    "reducescatter": "value, name=None, op=Average",
    "load_model": "filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none, "
    "legacy_opts=False",
    "callbacks.BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "callbacks.MetricAverageCallback": "device=''",
    "callbacks.LearningRateScheduleCallback": "initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, "
    "momentum_correction=True, steps_per_epoch=None",
    "callbacks.LearningRateWarmupCallback": "initial_lr, warmup_epochs=5, momentum_correction=True, "
    "steps_per_epoch=None, verbose=0",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, mode='auto', save_freq='epoch'",
    "elastic.KerasState": "model, optimizer=None, **kwargs",
    "elastic.CommitStateCallback": "state, batches_per_commit=1",
    "elastic.UpdateBatchStateCallback": "state",
    "elastic.UpdateEpochStateCallback": "state",
    "elastic.run": "func",
}
OF_TENSORFLOW = {
    **SIGNATURES,
    "DistributedOptimizer": DISTRIBUTED
    + "backward_passes_per_step=1, average_aggregated_gradients=False, num_groups=0, groups=None, process_set=SET, "
    "scale_local_gradients=True",
    "callbacks.BestModelCheckpoint": "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', "
    "save_freq='epoch'",
}


def text_of(module: Any, name: str) -> str:
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(found).parameters.values()
    ]
    texts = []
    for parameter in parameters:
        default = parameter.default
        if default is module.global_process_set:
            texts.append(f"{parameter.name}=SET")
        elif default is module.Average:
            texts.append(f"{parameter.name}=Average")
        elif default is module.Compression.none:
            texts.append(f"{parameter.name}=Compression.none")
        else:
            texts.append(str(parameter))
    return ", ".join(texts)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    assert text_of(hvd, name) == SIGNATURES[name]


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_signature_of_tensorflow(name: str) -> None:
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Not here: Keras runs on another backend, and a process has one.")
    assert text_of(importlib.import_module("horovod.tensorflow.keras"), name) == OF_TENSORFLOW[name]


def test_constants() -> None:
    assert (hvd.Average, hvd.Sum, hvd.Adasum) == (0, 1, 2)


def test_import_paths() -> None:
    for package in ("horovod.keras", "horovod.tensorflow.keras"):
        if package == "horovod.keras" or keras.backend.backend() == "tensorflow":
            for module in ("callbacks", "elastic"):
                importlib.import_module(f"{package}.{module}")
    assert len(set(hvd.__all__)) == len(hvd.__all__) and all(hasattr(hvd, name) for name in hvd.__all__)
