"""`HorovodGroup`: the process group that torch.distributed gets from the backend "horovod".

torch takes a Python subclass of its ProcessGroup as the whole group. Methods have the names that torch calls, from
Python and from C++, in the versions that are supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist

from horovod._core.errors import UnsupportedError
from horovod._core.life.process_sets import ProcessSet
from horovod.torch.distributed.movements import Movements
from horovod.torch.distributed.operands import require_main_memory
from horovod.torch.distributed.reductions import Reductions

__all__ = ["HorovodGroup"]


class HorovodGroup(Reductions, Movements):
    """A process group whose ranks are a process set.

    Args:
        name: torch's for the group.
        process_set: the ranks.
        rank: of this process in the group.
        timeout_s: how long `Work.wait` waits.
        on_shutdown: called once when the group is destroyed.
    """

    def __init__(
        self,
        name: str,
        process_set: ProcessSet,
        rank: int,
        timeout_s: float,
        on_shutdown: Optional[Callable[[], None]] = None,
    ) -> None:
        super().__init__(process_set, rank, timeout_s)
        self._name = name
        self._description = ""
        self._on_shutdown = on_shutdown

    def getBackendName(self) -> str:  # noqa: N802 - torch's
        """The name of the backend."""
        return "horovod"

    def getSize(self) -> int:  # noqa: N802
        """Number of ranks."""
        return len(self._ranks)

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """torch's name for the group."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        """torch's name for the group."""
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """What the group is for."""
        self._description = description

    def getGroupDesc(self) -> str:  # noqa: N802
        """What the group is for."""
        return self._description

    @property
    def group_name(self) -> str:
        """torch's name for the group."""
        return str(dist.distributed_c10d._world.pg_names.get(self, self._name))

    @property
    def group_desc(self) -> str:
        """What the group is for."""
        return self._description

    @property
    def _device_types(self) -> Sequence[torch.device]:
        # While torch makes the group, it attaches a recorder to the backend of each device: this group has no backends.
        return [torch.device("cpu")] if self in dist.distributed_c10d._world.pg_map else []

    def get_backend(self, device: torch.device) -> HorovodGroup:
        """What moves tensors of a device: the group itself, which has no backends of its own."""
        require_main_memory(torch.device(device))
        return self

    _get_backend = get_backend  # its name before torch 2.15

    def set_timeout(self, timeout: Any) -> None:
        """How long `Work.wait` waits from now on."""
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout  # torch's name of it in a backend

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Not there: raises UnsupportedError."""
        raise UnsupportedError(
            "The backend 'horovod' has no monitored_barrier: use barrier. A barrier that some rank does not reach is "
            "reported with the names of these ranks anyway."
        )

    def shutdown(self) -> None:
        """Called by destroy_process_group."""
        self._leave_kept()
        done, self._on_shutdown = self._on_shutdown, None
        if done is not None:
            done()

    def abort(self) -> None:
        """As `shutdown`."""
        self.shutdown()

    def __del__(self) -> None:
        """For torch 2.4, where destroy_process_group drops the group without another word."""
        self.shutdown()
