"""`StrategyMethods`: in what the strategies for `Trainer` and for `Fabric` differ from Lightning's `DDPStrategy`.

Mixed in before that by `registration`. Training is torch's DistributedDataParallel over the backend "horovod"; the
process group is made by `horovod.torch.distributed`, so that no store listens where all ranks are on one host. This
file does not import Lightning.
"""

from __future__ import annotations

import datetime
from typing import Any, Optional

import torch
import torch.distributed as dist

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError
from horovod.torch.distributed import init_process_group

__all__ = ["StrategyMethods"]

BACKEND_OF = {"cuda": "nccl"}  # by kind of device; "horovod" for the others


class StrategyMethods:
    """See the module. Options are those of Lightning's `DDPStrategy`, but for two: where ranks come from is Horovod's
    matter, and so are `cluster_environment` and `start_method`."""

    environment_class: type[Any]  # for the package of the strategy
    chosen_device: Optional[torch.device] = None  # of this rank, where another program has chosen it, such as Spark
    parallel_devices: Any
    num_nodes: int
    _timeout: Optional[datetime.timedelta]

    def __init__(self, **options: Any) -> None:
        if refused := sorted({"cluster_environment", "start_method"} & options.keys()):
            raise InvalidArgumentError(
                f"HorovodStrategy was given {' and '.join(refused)}; its ranks are those that the launcher has "
                "started. Leave that out, or use Lightning's DDPStrategy with HorovodEnvironment()."
            )
        super().__init__(cluster_environment=self.environment_class(), **options)  # type: ignore[call-arg]

    @property
    def num_processes(self) -> int:
        """The number of ranks on this host."""
        return hvd.local_size()

    @property
    def root_device(self) -> torch.device:
        """This rank's device: the only one, or that of its local rank."""
        if self.chosen_device is not None:
            return self.chosen_device
        devices = self.parallel_devices or [torch.device("cpu")]
        if len(devices) >= hvd.local_size():
            return torch.device(devices[hvd.local_rank()])
        (first,) = {torch.device(device).type for device in devices}
        return torch.device(first) if first == "cpu" else torch.device(first, hvd.local_rank())

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        """Which part of the data is this rank's."""
        return {"num_replicas": hvd.size(), "rank": hvd.rank()}

    def _configure_launcher(self) -> None:
        """Called by Lightning when it knows `devices` and `num_nodes`.

        Raises:
            InvalidArgumentError: they are not what the launcher has started.
        """
        given = len(self.parallel_devices or [0]), self.num_nodes
        started = hvd.local_size(), hvd.cross_size()
        if given[0] not in (1, started[0]) or given[1] not in (1, started[1]):
            raise InvalidArgumentError(
                f"HorovodStrategy was given devices={given[0]} and num_nodes={given[1]}; the launcher has started "
                f"{started[0]} ranks on this host, of {started[1]} hosts, each with one device. Give devices=1, and "
                "start another number of ranks with horovodrun -np."
            )
        self.num_nodes = started[1]
        super()._configure_launcher()  # type: ignore[misc]

    def setup_environment(self) -> None:
        """Makes the process group, unless there is one.

        Raises:
            InvalidArgumentError: the process group that is there has another backend.
        """
        device = self.root_device.type
        backend = getattr(self, "_process_group_backend", None) or BACKEND_OF.get(device, "horovod")
        self._process_group_backend: Optional[str] = backend
        if not dist.is_initialized():
            init_process_group(backend, timeout=self._timeout)
        elif dist.get_backend() != backend:
            raise InvalidArgumentError(
                f"There is a process group of the backend '{dist.get_backend()}' already; HorovodStrategy needs "
                f"'{backend}'. Leave making it to the strategy, or give it process_group_backend="
                f"'{dist.get_backend()}'."
            )
        super().setup_environment()  # type: ignore[misc]


class TrainerMethods(StrategyMethods):
    """What only `Trainer` asks of its strategy."""

    model: Any
    lightning_module: Any
    _ddp_kwargs: dict[str, Any]
    _ddp_comm_state: Any
    _ddp_comm_hook: Any
    _ddp_comm_wrapper: Any

    def configure_ddp(self) -> None:
        """Wraps the module. With several optimizers each pass leaves the parameters of the others out, which DDP must
        be told; elsewhere it need not look for them."""
        if not self.lightning_module.automatic_optimization:
            self._ddp_kwargs.setdefault("find_unused_parameters", True)
        super().configure_ddp()  # type: ignore[misc]

    def _register_ddp_hooks(self) -> None:
        """On every device; Lightning's own does nothing on the CPU."""
        if self._ddp_comm_hook is not None:
            wrap = self._ddp_comm_wrapper or (lambda hook: hook)
            self.model.register_comm_hook(self._ddp_comm_state, wrap(self._ddp_comm_hook))
