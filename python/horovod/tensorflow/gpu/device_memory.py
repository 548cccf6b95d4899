"""Whether TensorFlow's operators outside XLA take tensors where they lie on the GPU.

They do once the helper has been built (`helper`): then allreduces and broadcasts go as PyTorch's tensors go, ordered by
TensorFlow's compute stream. Otherwise TensorFlow copies the tensors to the host's memory and back. Asked by `dispatch`
before an operator is made.
"""

from __future__ import annotations

import logging
import threading
from typing import Final, Optional

import tensorflow as tf

from horovod._core.life import engine_start, session
from horovod._core.life.session import Session
from horovod.tensorflow.gpu import helper

__all__ = ["make_ready", "take"]

log = logging.getLogger("horovod")

_asked_in: Optional[Session] = None
_one_thread: Final = threading.Lock()


def make_ready() -> None:
    """Before the first operator of each life: decides for a process that computes on one CUDA device. Not collective,
    so all ranks must have the helper, or none; the core says which rank differs."""
    global _asked_in
    current = session.current
    if current is None or _asked_in is current:
        return
    with _one_thread:
        if _asked_in is current:
            return
        _decide(current)
        _asked_in = current


def _decide(current: Session) -> None:
    if not tf.test.is_built_with_cuda() or current.settings.gpu_operations == "gloo":
        return
    visible = tf.config.get_visible_devices("GPU")
    if len(visible) != 1:
        return  # none; or several, of which the core uses one
    why_not = take(int(visible[0].name.rpartition(":")[2]))
    if why_not and current.local_rank == 0:  # each host has a helper of its own, or none
        log.warning(
            "TensorFlow copies tensors on GPUs to the host's memory and back for every collective outside XLA: %s. "
            "Results are correct; expect the speed of the PCIe bus.",
            why_not,
        )


def take(device: int) -> str:
    """From now on operators of this process take tensors on this device as they lie; why not, or empty.

    Args:
        device: as CUDA counts in this process, from 0.
    """
    from horovod._core.life.planes import gpu_plane  # few programs have a GPU

    current = session.require()
    try:
        path = helper.found()
        if path is None:
            return f"the helper for TensorFlow {tf.__version__} has not been built; run {helper.COMMAND} on all hosts"
        function = helper.function(path)
        if not gpu_plane.use_in_every_life(current, device):
            return gpu_plane.why_not(current, device)
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home, or settings leave no way
        return str(error)
    return engine_start.tensorflow_gpu_problem(function)
