"""Functions of users, as ranks call them; they travel to the actors by value or by this module's name."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path
from typing import Any


def placed(word: str = "") -> tuple[Any, ...]:
    """What a rank sees: numbers, a sum over all ranks, its variables."""
    import numpy

    import horovod.numpy as hvd
    from horovod.ray import ray_logger

    hvd.init()
    total = float(hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
    ray_logger.log({"rank": hvd.rank(), "total": total})
    numbers = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_size()
    own = [os.environ.get(name) for name in ("HOROVOD_RANK", "HOROVOD_HOSTNAME", "OURS", "CUDA_VISIBLE_DEVICES")]
    return numbers, total, own, word, socket.gethostname(), os.getpid()


def fails_on_rank_1() -> None:
    """The others stand in a collective meanwhile."""
    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("the data end here")
    hvd.barrier()


def dies_on_rank_1() -> None:
    """As `fails_on_rank_1`, but its process is gone."""
    import horovod.numpy as hvd

    hvd.init()
    if hvd.rank() == 1:
        os.kill(os.getpid(), 9)
    hvd.barrier()


def stands() -> None:
    """Until somebody ends it."""
    import time

    import horovod.numpy as hvd

    hvd.init()
    hvd.barrier()
    time.sleep(60)
    hvd.barrier()


def waits_for(over: str, late: str) -> tuple[float, bytes, list[str]]:
    """Until there is a file of the first name; a sum over all ranks, and what `secret_in_sight` finds. Rank 1 of a job
    of fixed size comes when there is one of the second name."""
    import time

    import numpy

    import horovod.numpy as hvd
    from horovod.ray import ray_logger

    while os.environ.get("HOROVOD_RANK") == "1" and not os.path.exists(late):
        time.sleep(0.1)
    hvd.init()
    hvd.barrier()
    ray_logger.log({"ranks": hvd.size()})
    while not os.path.exists(over):
        time.sleep(0.1)
    total = float(hvd.allreduce(numpy.array([hvd.rank() + 1.0]), op=hvd.Sum)[0])
    return total, *secret_in_sight()


def secret_in_sight() -> tuple[bytes, list[str]]:
    """The job's secret, and where others could read it."""
    from horovod._core.life import given_placement

    secret = given_placement.of_this_process().secret
    assert secret is not None
    known = {f"/proc/self/{name}": Path(f"/proc/self/{name}").read_bytes() for name in ("environ", "cmdline")}
    known["os.environ"] = b"".join(os.fsencode(name + value) for name, value in os.environ.items())
    return secret, [place for place, text in known.items() if has_secret(text, secret)]


def has_secret(text: bytes, secret: bytes) -> bool:
    """In one of the forms that a careless program writes."""
    return any(form in text for form in (secret, secret.hex().encode(), base64.b64encode(secret)[:-1]))


class Counter:
    """A stateful class, which has called `hvd.init()` itself."""

    def __init__(self, start: int, step: int = 1) -> None:
        import horovod.numpy as hvd

        hvd.init()
        self.value = start + hvd.rank()
        self.step = step

    def count(self) -> int:
        self.value += self.step
        return self.value

    def summed(self) -> float:
        import numpy

        import horovod.numpy as hvd

        return float(hvd.allreduce(numpy.array([float(self.value)]), op=hvd.Sum)[0])


def _refuses() -> None:
    raise ValueError("cannot be read")


class Unreadable:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuses, ()


class Refuses:
    """Cannot be made on rank 1."""

    def __init__(self) -> None:
        import horovod.numpy as hvd

        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("cannot be made")
        hvd.barrier()
