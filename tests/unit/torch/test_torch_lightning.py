"""What `horovod.lightning` answers to Lightning, which is not in this environment: a package with what is called stands
for it. The whole is tested by tests/trainers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError

_REGISTRY = """
class Registry(dict):
    def register(self, name, strategy, description, override):
        self[name] = strategy
"""
_STRATEGIES = """
class DDPStrategy:
    num_nodes = 1

    def __init__(self, parallel_devices=None, cluster_environment=None):
        self.parallel_devices, self.cluster_environment = parallel_devices, cluster_environment

    def _configure_launcher(self):
        self.launched = self.num_processes, self.num_nodes
"""
FILES = {
    "__init__.py": "__version__ = '2.0.0'" + _REGISTRY,
    "pytorch/__init__.py": "",
    "pytorch/strategies.py": "from lightning import Registry\nStrategyRegistry = Registry()" + _STRATEGIES,
    "fabric/__init__.py": "",
    "fabric/strategies.py": "from lightning import Registry\nSTRATEGY_REGISTRY = Registry()" + _STRATEGIES,
    "fabric/plugins/__init__.py": "",
    "fabric/plugins/environments.py": "class ClusterEnvironment: pass",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        file = tmp_path / "lightning" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delattr("horovod.lightning", raising=False)
    yield tmp_path / "lightning"
    for module in [name for name in sys.modules if name.startswith(("lightning", "horovod.lightning"))]:
        del sys.modules[module]


@pytest.fixture
def ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package, in the second of two ranks on the second of two hosts, of which the first has five."""
    placed = {"size": 7, "rank": 6, "local_size": 2, "local_rank": 1, "cross_size": 2, "cross_rank": 1}
    for name, value in {**placed, "is_initialized": True}.items():
        monkeypatch.setattr(hvd, name, lambda value=value: value)
    return importlib.import_module("horovod.lightning")


def on(*devices: str) -> dict[str, Any]:
    return {"parallel_devices": [torch.device(device) for device in devices]}


def test_both_strategies_are_registered(ours: Any) -> None:
    trainers, fabrics = (sys.modules[f"lightning.{part}.strategies"] for part in ("pytorch", "fabric"))
    assert {"horovod": ours.HorovodStrategy} == trainers.StrategyRegistry
    assert {"horovod": ours.HorovodFabricStrategy} == fabrics.STRATEGY_REGISTRY


def test_the_part_of_the_data_follows_from_the_ranks_where_hosts_have_different_numbers(ours: Any) -> None:
    strategy = ours.HorovodStrategy(**on("cpu"))
    assert strategy.distributed_sampler_kwargs == {"num_replicas": 7, "rank": 6}
    strategy._configure_launcher()
    assert strategy.launched == (2, 2)


@pytest.mark.parametrize(
    ("devices", "own"), [(["cpu"], "cpu"), (["cuda:0"], "cuda:1"), (["cuda:2", "cuda:3"], "cuda:3")]
)
def test_each_rank_has_a_device_of_its_own(ours: Any, devices: list[str], own: str) -> None:
    assert ours.HorovodStrategy(**on(*devices)).root_device == torch.device(own)


def test_numbers_that_the_launcher_has_not_started_are_refused(ours: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"devices=3 .* started 2 ranks on this host, of 2 hosts"):
        ours.HorovodStrategy(**on("cpu", "cpu", "cpu"))._configure_launcher()
    with pytest.raises(InvalidArgumentError, match="cluster_environment"):
        ours.HorovodStrategy(cluster_environment=None)
    environment = ours.HorovodEnvironment()
    environment.validate_settings(num_devices=2, num_nodes=2)
    with pytest.raises(InvalidArgumentError, match="devices=1 and num_nodes=2"):
        environment.validate_settings(num_devices=1, num_nodes=2)


def test_several_hosts_need_an_address(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = ours.HorovodEnvironment()
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InvalidArgumentError, match="MASTER_ADDR"):
        _ = environment.main_address
    monkeypatch.setenv("MASTER_ADDR", "first")
    monkeypatch.setenv("MASTER_PORT", "1234")
    assert (environment.main_address, environment.main_port) == ("first", 1234)


def test_lightning_1_is_refused(folder: Path) -> None:
    (folder / "__init__.py").write_text("__version__ = '1.9.5'")
    with pytest.raises(ImportError, match="has a strategy 'horovod' of its own"):
        importlib.import_module("horovod.lightning")
