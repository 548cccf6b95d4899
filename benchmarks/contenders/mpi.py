"""MPI through mpi4py, on NumPy buffers, in the environment of one MPI wheel. Used through `library`.

Gradient modes: "separate" (a call for each), "copies" (25 MB buckets, copied in and out), "views" (the gradients are
views into 25 MB buckets).
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from contenders.library import Library, Prepared, buckets, there_and_back, zeros

_BUCKET_ELEMS = (25 << 20) // 4


class Mpi(Library):
    """COMM_WORLD of whichever MPI started this process."""

    def __init__(self) -> None:
        self._world = MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size
        self.versions = MPI.Get_library_version().split(",")[0].splitlines()[0].replace("\t", " ").strip()

    def collective(self, operation: str, elems: int, variant: str) -> Prepared:
        """No variants."""
        world, size = self._world, self.size
        source = zeros(elems)
        # Bound once: attribute look-ups in the measured call would be ours, not MPI's.
        allreduce, in_place, broadcast = world.Allreduce, MPI.IN_PLACE, world.Bcast
        if operation == "allreduce":
            return Prepared([source], lambda: allreduce(in_place, source), lambda _: [source])
        if operation == "broadcast":
            return Prepared([source], lambda: broadcast(source, 0), lambda _: [source])
        if operation == "send":
            back, send, receive, other = zeros(elems), world.Send, world.Recv, 1 - self.rank
            call = there_and_back(self.rank, lambda: send(source, other), lambda: receive(back, other))
            return Prepared([source], call, lambda _: [back])
        # What fills a buffer of so many elements.
        moves = {
            "allgather": (world.Allgather, elems * size),
            "alltoall": (world.Alltoall, elems),
            "reducescatter": (world.Reduce_scatter_block, elems // size),
        }
        if operation in moves:
            move, length = moves[operation]
            empty, float32 = np.empty, np.float32

            def into_new_memory() -> np.ndarray:
                result = empty(length, float32)
                move(source, result)
                return result

            return Prepared([source], into_new_memory, lambda result: [result])
        raise NotImplementedError(operation)

    def gradients(self, sizes: list[int], mode: str) -> Prepared:
        """Modes: separate, copies, views."""
        world = self._world
        if mode == "separate":
            arrays = [zeros(size) for size in sizes]

            def one_by_one() -> None:
                for array in arrays:
                    world.Allreduce(MPI.IN_PLACE, array)

            return Prepared(arrays, one_by_one, lambda _: arrays)
        if mode not in ("copies", "views"):
            raise NotImplementedError(mode)
        groups = buckets(sizes, _BUCKET_ELEMS)
        flats = [zeros(sum(sizes[number] for number in group)) for group in groups]
        views: list[np.ndarray] = []
        for group, flat in zip(groups, flats):
            edges = np.cumsum([sizes[number] for number in group])[:-1]
            views += np.split(flat, edges)
        if mode == "views":

            def by_bucket() -> None:
                for flat in flats:
                    world.Allreduce(MPI.IN_PLACE, flat)

            return Prepared(views, by_bucket, lambda _: views)
        own = [zeros(size) for size in sizes]

        def with_copies() -> None:
            for group, flat in zip(groups, flats):
                for number in group:
                    views[number][:] = own[number]
                world.Allreduce(MPI.IN_PLACE, flat)
                for number in group:
                    own[number][:] = views[number]

        return Prepared(own, with_copies, lambda _: own)


def make(flavour: str) -> Library:
    """Collective. MPI has been initialised by importing mpi4py."""
    return Mpi()
