"""Makes the strategies of each installed Lightning, and registers them there as "horovod".

`lightning` and `pytorch_lightning` hold the same classes twice; each takes only those of its own kind.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from horovod.lightning.environment import EnvironmentMethods
from horovod.lightning.strategy import StrategyMethods, TrainerMethods

__all__ = ["register"]

NAME = "horovod"
# Package -> where Trainer's and Fabric's parts are.
PACKAGES = {
    "lightning": ("lightning.pytorch", "lightning.fabric"),
    "pytorch_lightning": ("pytorch_lightning", "lightning_fabric"),
}


def register() -> tuple[type[Any], type[Any], type[Any]]:
    """Registers in all of them.

    Returns:
        HorovodEnvironment, HorovodStrategy and HorovodFabricStrategy, of `lightning` if it is there.

    Raises:
        ModuleNotFoundError: there is none.
        ImportError: it is older than version 2.
    """
    found = [package for package in PACKAGES if importlib.util.find_spec(package) is not None]
    if not found:
        raise ModuleNotFoundError(
            f"horovod.lightning needs Lightning 2, which this Python ({sys.executable}) does not have; pip install "
            "lightning",
            name="lightning",
        )
    return [_register_in(package) for package in found][0]


def _register_in(package: str) -> tuple[type[Any], type[Any], type[Any]]:
    version = importlib.import_module(package).__version__
    if int(version.split(".")[0]) < 2:
        raise ImportError(
            f"horovod.lightning is for Lightning 2; {package} {version} has a strategy 'horovod' of its own, which "
            "works with this Horovod: leave the import out, or upgrade.",
            name=package,
        )
    trainers, fabrics = (importlib.import_module(f"{part}.strategies") for part in PACKAGES[package])
    environments = importlib.import_module(f"{PACKAGES[package][1]}.plugins.environments")
    environment = _made("HorovodEnvironment", EnvironmentMethods, environments.ClusterEnvironment)
    shared = {"environment_class": environment}
    for_trainer = _made("HorovodStrategy", TrainerMethods, trainers.DDPStrategy, **shared)
    for_fabric = _made("HorovodFabricStrategy", StrategyMethods, fabrics.DDPStrategy, **shared)
    for registry, strategy in ((trainers.StrategyRegistry, for_trainer), (fabrics.STRATEGY_REGISTRY, for_fabric)):
        registry.register(NAME, strategy, "DDP over the ranks and the operations of Horovod", override=True)
    return environment, for_trainer, for_fabric


def _made(name: str, methods: type[Any], base: type[Any], **members: Any) -> type[Any]:
    return type(name, (methods, base), {"__module__": "horovod.lightning", "__doc__": methods.__doc__, **members})
