"""`EnvironmentMethods`: what Lightning asks about the ranks, answered by `hvd.init()`.

Mixed in before Lightning's `ClusterEnvironment` by `registration`. This file does not import Lightning.
"""

from __future__ import annotations

import os
import socket

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError

__all__ = ["EnvironmentMethods"]


class EnvironmentMethods:
    """The ranks that `hvd.init()` knows, however they were started, as a cluster environment of Lightning::

        Trainer(
            strategy=DDPStrategy(cluster_environment=HorovodEnvironment(), process_group_backend="horovod"),
            devices=hvd.local_size(), num_nodes=hvd.cross_size(),
        )

    Making one calls `hvd.init()` unless the program has.
    """

    def __init__(self) -> None:
        super().__init__()
        if not hvd.is_initialized():
            hvd.init(process_sets="dynamic")
        self._port = 0

    @staticmethod
    def detect() -> bool:
        """False: Lightning does not choose it by itself."""
        return False

    @property
    def creates_processes_externally(self) -> bool:
        """True: Lightning starts no processes."""
        return True

    @property
    def main_address(self) -> str:
        """Where rank 0 keeps the store of torch.distributed.

        Raises:
            InvalidArgumentError: the ranks are on several hosts, and MASTER_ADDR is not set.
        """
        given = os.environ.get("MASTER_ADDR")
        if not given and hvd.local_size() != hvd.size():
            raise InvalidArgumentError(
                "Ranks on several hosts need a store for torch.distributed. Set MASTER_ADDR and MASTER_PORT to an "
                "address and a free port of rank 0's host."
            )
        return given or "127.0.0.1"

    @property
    def main_port(self) -> int:
        """The store's port: MASTER_PORT, or a free one that rank 0 has chosen. Collective, the first time, if it is not
        set."""
        if "MASTER_PORT" in os.environ:
            return int(os.environ["MASTER_PORT"])
        if not self._port:
            self._port = hvd.broadcast_object(free_port() if hvd.rank() == 0 else 0, root_rank=0)
        return self._port

    def world_size(self) -> int:
        """The number of ranks."""
        return hvd.size()

    def set_world_size(self, size: int) -> None:
        """Does nothing: Lightning's count follows from `devices` and `num_nodes`."""

    def global_rank(self) -> int:
        """This process among the ranks."""
        return hvd.rank()

    def set_global_rank(self, rank: int) -> None:
        """Does nothing, as `set_world_size`."""

    def local_rank(self) -> int:
        """This process among the ranks of its host."""
        return hvd.local_rank()

    def node_rank(self) -> int:
        """This host among the hosts."""
        return hvd.cross_rank()

    def validate_settings(self, num_devices: int, num_nodes: int) -> None:
        """Called by Lightning for its own strategies, which number the ranks by `devices` and `num_nodes`.

        Raises:
            InvalidArgumentError: these are not what the launcher has started.
        """
        started = hvd.local_size(), hvd.cross_size()
        if (num_devices, num_nodes) != started:
            raise InvalidArgumentError(
                f"Trainer was given devices={num_devices} and num_nodes={num_nodes}; the launcher has started "
                f"{started[0]} ranks on this host, of {started[1]} hosts. Give devices=hvd.local_size() and "
                "num_nodes=hvd.cross_size(), or use strategy='horovod', which takes devices=1."
            )


def free_port() -> int:
    """A TCP port of this host that nothing listens at now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
