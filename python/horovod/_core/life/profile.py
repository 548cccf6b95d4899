"""`profile`: where the time of a piece of the program went, on this rank."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Optional

from horovod._core.life import counters_page, session
from horovod._core.life.engine_port import OP_NAMES
from horovod._native import abi

__all__ = ["profile"]

_NS: Final = 1e-9


class profile:  # noqa: N801 - users write `with hvd.profile() as p:`
    """Measures where the time of the code inside went, on this rank. Not collective.

    Example::

        with hvd.profile() as p:
            for batch in loader:
                train_step(batch)
        print(p)

    Blocks may be nested. The figures are those of the whole process: other threads that use Horovod count too. On a
    GPU, what the device still does when the block ends is not in them; synchronize the device first.

    Attributes:
        wall: seconds that the block took; until its end, 0.
        waiting: of these, seconds in which the program waited in Horovod for other ranks.
        transferring: of these, seconds in which it waited in Horovod while tensors were moved.
        computing: the rest of `wall`: the program's own time.
        pending: seconds in which tensors had been submitted and waited for other ranks; the program may have computed
            meanwhile.
        processor: seconds of processors that the process used, all threads together.
        steps: training steps that ended.
        operations: by kind, such as "allreduce", the number of `tensors` of this rank and the `bytes` of its inputs.

    Raises:
        NotInitializedError: at the beginning of the block, `init` has not been called.
    """

    def __init__(self) -> None:
        self.wall = self.waiting = self.transferring = self.pending = self.processor = 0.0
        self.steps = 0
        self.operations: dict[str, dict[str, int]] = {}
        self._rank = 0
        self._before: list[int] = []
        self._began_s = self._used_s = 0.0

    def __enter__(self) -> profile:
        self._rank = session.require().rank
        self._before = counters_page.numbers()
        self._used_s = time.process_time()
        self._began_s = time.monotonic()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.wall = time.monotonic() - self._began_s
        self.processor = time.process_time() - self._used_s
        counted = [now - before for now, before in zip(counters_page.numbers(), self._before)]
        blocked = min(self.wall, counted[abi.COUNTER_BLOCKED_NS] * _NS)
        self.transferring = min(blocked, counted[abi.COUNTER_TRANSFER_NS] * _NS)
        self.waiting = blocked - self.transferring
        self.pending = min(self.wall, counted[abi.COUNTER_PENDING_NS] * _NS)
        self.steps = counted[abi.COUNTER_STEPS]
        volumes = counted[abi.COUNTER_OPERATIONS :]
        pairs = zip(OP_NAMES, volumes[::2], volumes[1::2])
        self.operations = {kind: {"tensors": n, "bytes": nbytes} for kind, n, nbytes in pairs if n}

    @property
    def computing(self) -> float:
        return self.wall - self.waiting - self.transferring

    def __str__(self) -> str:
        steps = f", {self.steps} steps" if self.steps else ""
        lines = [
            f"rank {self._rank}: computing {self._share(self.computing)}, waiting for others "
            f"{self._share(self.waiting)}, transferring {self._share(self.transferring)} of {self.wall:.3f} s{steps}"
        ]
        lines += [f"{kind}: {each['tensors']} tensors, {each['bytes']} bytes" for kind, each in self.operations.items()]
        return "\n".join(lines)

    def _share(self, seconds: float) -> str:
        return f"{100 * seconds / self.wall:.1f} %" if self.wall > 0 else "0 %"
