"""The discoveries of `horovod.ray.elastic`, under the names that their arguments have for `RayExecutor`."""

from __future__ import annotations

from horovod.ray import elastic

__all__ = ["RayHostDiscovery", "TestDiscovery"]


class RayHostDiscovery(elastic.RayHostDiscovery):
    """See `horovod.ray.elastic.RayHostDiscovery`."""

    def __init__(self, use_gpu: bool = False, cpus_per_worker: int = 1, gpus_per_worker: int = 1) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker)


class TestDiscovery(elastic.TestDiscovery):
    """See `horovod.ray.elastic.TestDiscovery`."""

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_worker: int = 1,
        gpus_per_worker: int = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        gpus = use_gpu, cpus_per_worker, gpus_per_worker
        super().__init__(min_hosts, max_hosts, change_frequency_s, *gpus, verbose, _graceful)
