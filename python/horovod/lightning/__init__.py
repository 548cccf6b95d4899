"""Horovod for Lightning 2: `import horovod.lightning`, then `Trainer(strategy="horovod")`, or Fabric with the same.

For `lightning` and `pytorch_lightning`, whichever is installed, or both. See docs/lightning.md.
"""

from __future__ import annotations

from horovod.lightning import registration as _registration

__all__ = ["HorovodEnvironment", "HorovodFabricStrategy", "HorovodStrategy"]

_environment, _strategy, _fabric_strategy = _registration.register()
HorovodEnvironment = _environment
HorovodStrategy = _strategy
HorovodFabricStrategy = _fabric_strategy
