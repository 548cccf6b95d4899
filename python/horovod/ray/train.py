"""Horovod as a backend of Ray Train (V2): `hvd.init()` works in the train function of a `DataParallelTrainer`.

Imports Ray Train; `horovod.ray` imports this when `HorovodConfig` is asked for.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ray.train.backend import Backend, BackendConfig

from horovod._net.secret import new_secret
from horovod.ray import here, placing
from horovod.ray.arguments import MiniSettings
from horovod.ray.environment import rank_environment

_NAME: Final = "HorovodConfig"


@dataclass
class HorovodConfig(BackendConfig):  # type: ignore[misc]
    """For `backend_config` of `ray.train.v2.api.data_parallel_trainer.DataParallelTrainer`: each worker is a rank.

    Args:
        nics: names of the network interfaces for traffic between nodes.
        verbose: 0 says nothing, 1 where the ranks are.
        timeout_s: seconds for `hvd.init()`.

    Raises:
        InvalidArgumentError: (also ValueError) one of them is not as it should be.
    """

    nics: Any = None
    verbose: int = 1
    timeout_s: float = 300
    _environ: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        MiniSettings(self.timeout_s)
        self.nics, self._environ = rank_environment(_NAME, self.timeout_s, self.nics, {})

    @property
    def backend_cls(self) -> type[Backend]:
        """For Ray Train."""
        return _HorovodBackend


class _HorovodBackend(Backend):  # type: ignore[misc]
    """What Ray Train calls when it has started workers, and before it ends them; after a failure it starts others."""

    def on_start(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        """Makes ranks of the workers, in Ray Train's order."""
        ranks = worker_group.execute(here.facts)
        where = None
        if not placing.is_one_host(ranks):
            where = worker_group.execute_single(0, here.meeting, backend_config.nics)
        job = f"{placing.LAUNCHER} {secrets.token_hex(8)}"
        places = placing.places(ranks, job, new_secret(), where, backend_config._environ, backend_config.nics)
        ray = sys.modules["ray"]
        ray.get([worker_group.execute_single_async(rank, here.take, place) for rank, place in enumerate(places)])
        if backend_config.verbose > 0:
            sys.stderr.write(f"{_NAME}: {placing.in_words(ranks)}\n")

    def on_shutdown(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        """Ranks say goodbye, so that none takes the end of another one for a failure."""
        worker_group.execute(here.end)
