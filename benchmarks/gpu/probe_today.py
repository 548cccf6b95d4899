"""What this version does with CUDA tensors: two ranks on one GPU through `horovod.torch`, staged through host memory.

Run by `run_all`; also the program of the ranks (see `job`). Beside each time stands that of a CPU tensor: the rest is
the price of staging.
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
    for name, call in _uses(torch, hvd).items():
        try:
            result = call()
            if isinstance(result, torch.Tensor):
                result = f"{result.device} {result.dtype} {result.detach().float().cpu().tolist()}"
            told(name, result)
        except Exception as error:  # a refusal is a result
            told(name, f"{type(error).__name__}: {error}")


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


def _uses(torch: Any, hvd: Any) -> dict[str, Callable[[], Any]]:
    """Calls of the interface with small CUDA tensors."""
    rank = hvd.rank()
    base = torch.arange(4.0, device="cuda") + rank

    def gradient() -> Any:
        leaf = base.clone().requires_grad_()
        hvd.allreduce(leaf, op=hvd.Sum, name="leaf").sum().backward()
        return leaf.grad

    def sparse() -> Any:
        made = torch.sparse_coo_tensor(torch.tensor([[rank, 2]], device="cuda"), torch.ones(2, device="cuda"), (4,))
        answer = hvd.sparse_allreduce_async(made, name="sparse", op=hvd.Sum)
        result = answer() if callable(answer) else hvd.synchronize(answer)
        return result.to_dense()

    def side_stream() -> Any:
        """The tensor is made by another stream that is still busy: its values must be those at its end."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            late = torch.ones(4, device="cuda") * (rank + 1)
            return hvd.allreduce(late, op=hvd.Sum, name="late")

    def batch_norm() -> Any:
        layer = hvd.SyncBatchNorm(2).cuda()
        return layer(torch.full((2, 2, 1), float(rank), device="cuda")).flatten()

    def state() -> str:
        model = torch.nn.Linear(2, 1).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 2, device="cuda")).sum().backward()
        optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        devices = {str(v.device) for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)}
        return f"done; state on {sorted(devices)}"

    def captured() -> Any:
        graph, still = torch.cuda.CUDAGraph(), base.clone()
        with torch.cuda.graph(graph):
            result = hvd.allreduce(still, op=hvd.Sum, name="captured")
        graph.replay()
        return result

    return {
        "allreduce, bfloat16": lambda: hvd.allreduce(base.bfloat16(), name="bf16"),
        "allreduce, Adasum": lambda: hvd.allreduce(base, op=hvd.Adasum, name="adasum"),
        "allreduce, compressed": lambda: hvd.allreduce(base, compression=hvd.Compression.fp16, name="fp16"),
        "broadcast": lambda: hvd.broadcast(base, 0),
        "allgather": lambda: hvd.allgather(base),
        "alltoall": lambda: hvd.alltoall(base),
        "reducescatter": lambda: hvd.reducescatter(base),
        "grouped_allreduce": lambda: hvd.grouped_allreduce([base, base])[1],
        "gradient of allreduce": gradient,
        "sparse_allreduce": sparse,
        "a tensor that another stream still makes": side_stream,
        "SyncBatchNorm": batch_norm,
        "broadcast_parameters, broadcast_optimizer_state": state,
        "torch.compile(backend='aot_eager')": lambda: torch.compile(
            lambda t: hvd.allreduce(t, op=hvd.Sum, name="compiled") + 1, backend="aot_eager"
        )(base),
        "one rank gives a CPU tensor": lambda: hvd.allreduce(base if rank else base.cpu(), name="mixed"),
        "inside torch.cuda.graph": captured,
    }


if __name__ == "__main__":
    _rank()
