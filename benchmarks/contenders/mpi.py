"""MPI through mpi4py, on NumPy buffers, in the environment of one MPI wheel. Used through `library`.

Gradient modes: "separate" (a call for each), "copies" (25 MB buckets, copied in and out), "views" (the gradients are
views into 25 MB buckets).
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from contenders.library import Library, Prepared, buckets

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
        source = np.zeros(elems, np.float32)
        if operation == "allreduce":
            # Bound once: attribute look-ups in the measured call would be ours, not MPI's.
            allreduce, in_place = world.Allreduce, MPI.IN_PLACE
            return Prepared([source], lambda: allreduce(in_place, source), lambda: [source])
        if operation == "broadcast":
            return Prepared([source], lambda: world.Bcast(source, 0), lambda: [source])
        if operation == "allgather":
            gathered = np.zeros(elems * size, np.float32)
            return Prepared([source], lambda: world.Allgather(source, gathered), lambda: [gathered])
        if operation == "alltoall":
            received = np.zeros(elems, np.float32)
            return Prepared([source], lambda: world.Alltoall(source, received), lambda: [received])
        if operation == "reducescatter":
            share = np.zeros(elems // size, np.float32)
            return Prepared([source], lambda: world.Reduce_scatter_block(source, share), lambda: [share])
        raise NotImplementedError(operation)

    def gradients(self, sizes: list[int], mode: str) -> Prepared:
        """Modes: separate, copies, views."""
        world = self._world
        if mode == "separate":
            arrays = [np.zeros(size, np.float32) for size in sizes]

            def one_by_one() -> None:
                for array in arrays:
                    world.Allreduce(MPI.IN_PLACE, array)

            return Prepared(arrays, one_by_one, lambda: arrays)
        if mode not in ("copies", "views"):
            raise NotImplementedError(mode)
        groups = buckets(sizes, _BUCKET_ELEMS)
        flats = [np.zeros(sum(sizes[number] for number in group), np.float32) for group in groups]
        views: list[np.ndarray] = []
        for group, flat in zip(groups, flats):
            edges = np.cumsum([sizes[number] for number in group])[:-1]
            views += np.split(flat, edges)
        if mode == "views":

            def by_bucket() -> None:
                for flat in flats:
                    world.Allreduce(MPI.IN_PLACE, flat)

            return Prepared(views, by_bucket, lambda: views)
        own = [np.zeros(size, np.float32) for size in sizes]

        def with_copies() -> None:
            for group, flat in zip(groups, flats):
                for number in group:
                    views[number][:] = own[number]
                world.Allreduce(MPI.IN_PLACE, flat)
                for number in group:
                    own[number][:] = views[number]

        return Prepared(own, with_copies, lambda: own)


def make(flavour: str) -> Library:
    """Collective. MPI has been initialised by importing mpi4py."""
    return Mpi()
