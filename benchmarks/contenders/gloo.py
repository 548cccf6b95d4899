"""torch.distributed with gloo, and DDP on top of it. Used through `library`.

Gradient modes: "separate" (a call for each, all in flight), "copies" (25 MB buckets, copied in and out), "views" (the
gradients are views into 25 MB buckets, all in flight), as DDP does with gradient_as_bucket_view.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from contenders.library import Library, Prepared, buckets, there_and_back

_BUCKET_ELEMS = (25 << 20) // 4


class Gloo(Library):
    """The default group of torch.distributed."""

    def __init__(self) -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self.rank, self.size = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_SIZE"])
        store = dist.FileStore(os.environ["BENCH_STORE"], self.size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size)
        self.versions = f"torch {torch.__version__} gloo"

    def collective(self, operation: str, elems: int, variant: str) -> Prepared:
        """No variants."""
        tensor = torch.zeros(elems)
        array = tensor.numpy()
        if operation == "allreduce":
            return Prepared([array], lambda: dist.all_reduce(tensor), lambda _: [array])
        if operation == "broadcast":
            return Prepared([array], lambda: dist.broadcast(tensor, 0), lambda _: [array])
        if operation == "send":
            back, other = torch.zeros(elems), 1 - self.rank
            call = there_and_back(self.rank, lambda: dist.send(tensor, other), lambda: dist.recv(back, other))
            return Prepared([array], call, lambda _: [back.numpy()])
        # What fills a tensor of so many elements.
        moves = {
            "allgather": (dist.all_gather_into_tensor, elems * self.size),
            "alltoall": (dist.all_to_all_single, elems),
            "reducescatter": (dist.reduce_scatter_tensor, elems // self.size),
        }
        if operation in moves:
            move, length = moves[operation]

            def into_new_memory() -> torch.Tensor:
                result = torch.empty(length)
                move(result, tensor)
                return result

            return Prepared([array], into_new_memory, lambda result: [result.numpy()])
        raise NotImplementedError(operation)

    def gradients(self, sizes: list[int], mode: str) -> Prepared:
        """Modes: separate, copies, views."""
        if mode == "separate":
            tensors = [torch.zeros(size) for size in sizes]
            arrays = [tensor.numpy() for tensor in tensors]
            return Prepared(arrays, lambda: _reduce_all(tensors), lambda _: arrays)
        if mode not in ("copies", "views"):
            raise NotImplementedError(mode)
        groups = buckets(sizes, _BUCKET_ELEMS)
        flats = [torch.zeros(sum(sizes[number] for number in group)) for group in groups]
        views = [
            view
            for group, flat in zip(groups, flats)
            for view in torch.split(flat, [sizes[number] for number in group])
        ]
        if mode == "views":
            shown = [view.numpy() for view in views]
            return Prepared(shown, lambda: _reduce_all(flats), lambda _: shown)
        own = [torch.zeros(size) for size in sizes]
        arrays = [tensor.numpy() for tensor in own]

        def with_copies() -> None:
            works = []
            for group, flat in zip(groups, flats):
                for number in group:
                    views[number].copy_(own[number])
                works.append(dist.all_reduce(flat, async_op=True))
            for work, group in zip(works, groups):
                work.wait()
                for number in group:
                    own[number].copy_(views[number])

        return Prepared(arrays, with_copies, lambda _: arrays)

    def wrapped(self, model: Any, optimizer: Any, variant: str = "wrapped") -> tuple[Any, Any]:
        """DDP with its best settings for a model on the CPU: bucket views, no broadcast of buffers."""
        ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
        return ddp, optimizer

    def close(self) -> None:
        """Collective."""
        dist.destroy_process_group()


def _reduce_all(tensors: list[torch.Tensor]) -> None:
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()


def make(flavour: str) -> Library:
    """Collective. Needs BENCH_RANK, BENCH_SIZE and BENCH_STORE (a file) in the environment."""
    return Gloo()
