"""What this version does with CUDA tensors: two ranks on one GPU through `horovod.torch`, staged through host memory.

Run by `run_all`; also the program of the ranks (see `job`). Beside each time stands that of a CPU tensor: the rest is
the price of staging. What each operation gives is the contract suite's matter.
"""

from __future__ import annotations

import time
import warnings
from typing import Any, Callable

import job
from table import Table, quartiles, size_label, spread

_SIZES = (4, 64 << 10, 1 << 20, 16 << 20, 100 << 20)


def parts() -> list[Callable[[], Table]]:
    """One table: both are from the same job."""
    return [_two_ranks]


def _two_ranks() -> Table:
    made = Table("CUDA tensors today: two ranks on one GPU", ("what", "result"))
    rows, made.note = job.rows_of(__file__, 100)
    made.rows = [tuple(row) for row in rows]
    return made


def _rank() -> None:
    import torch

    import horovod.torch as hvd

    hvd.init()
    told: Callable[..., None] = job.tell if hvd.rank() == 0 else lambda *_: None
    for size in _SIZES:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = _measure(torch, hvd, size, "cuda")
        told(f"allreduce_ of {size_label(size)}", outcome)
        told(f"the same of a CPU tensor, {size_label(size)}", _measure(torch, hvd, size, "cpu"))
        for warning in caught:
            told("warning", f"{warning.category.__name__}: {warning.message}")


def _measure(torch: Any, hvd: Any, size_bytes: int, device: str) -> str:
    tensor = torch.full((size_bytes // 4,), float(hvd.rank() + 1), device=device)
    name = f"{device}{size_bytes}"
    try:
        hvd.allreduce_(tensor, op=hvd.Sum, name=name)
        right = bool((tensor == 3.0).all())
        taken = []
        for _ in range(15):
            tensor.fill_(1.0)
            torch.cuda.synchronize()
            hvd.barrier()
            begin = time.perf_counter()
            hvd.allreduce_(tensor, op=hvd.Sum, name=name)
            torch.cuda.synchronize()
            taken.append(time.perf_counter() - begin)
        rate = size_bytes / quartiles(taken)[1] / 1e9
        return f"{'right' if right else 'WRONG'}; {spread(taken, 1e6)} us; {rate:.3g} GB/s"
    except Exception as error:  # a refusal is a result
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    _rank()
