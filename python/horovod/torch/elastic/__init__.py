"""Elastic training with PyTorch: the retry loop `run`, the state `TorchState`, and the sampler `ElasticSampler`.

The loop is the core's (`horovod._core.training.elastic`); the parts that know torch are in `state` and `sampler`.
"""

from __future__ import annotations

from horovod._core.training.elastic.loop import F, reset_engine, run_fn
from horovod.torch.elastic import state
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run", "state"]


def run(func: F) -> F:
    """Decorator of a training function whose first argument is a state: runs it again after a failure or a change of
    hosts.

    Collective: all ranks run the function.
    """
    return run_fn(func, reset_engine)
