"""The operations that users call, written once for every framework: `Collectives(adapter)`.

A framework module makes one instance with its adapter and exports the bound methods (`allreduce = _ops.allreduce`),
wrapping only what its automatic differentiation needs. The methods check arguments, choose names and factors and hand
over to `submission`; results and waiting are in `handles`. Reductions are in `reductions`, operations that only move
data in `movements`, those of two ranks in `point_to_point`, those into tensors of the caller's in `given_outputs`.
"""

from __future__ import annotations

from horovod._core.operations.given_outputs import GivenOutputs
from horovod._core.operations.movements import Movements
from horovod._core.operations.point_to_point import PointToPoint
from horovod._core.operations.reductions import Reductions

__all__ = ["Collectives"]


class Collectives(Reductions, Movements, PointToPoint, GivenOutputs):
    """All operations for the tensors of one framework.

    Every method but `poll`, `synchronize`, and those of `PointToPoint` is collective over `process_set`. Unnamed
    operations are counted per (process set, operation), so all members must issue them in the same order; named ones
    may come in any order.
    """
