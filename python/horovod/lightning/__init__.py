"""Horovod for Lightning 2: `import horovod.lightning`, then `Trainer(strategy="horovod")`, or Fabric with the same.

For `lightning` and `pytorch_lightning`, whichever is installed, or both. See docs/lightning.md.
"""

from __future__ import annotations

from horovod.lightning import registration as _registration

__all__ = ["HorovodEnvironment", "HorovodFabricStrategy", "HorovodStrategy"]

HorovodEnvironment, HorovodStrategy, HorovodFabricStrategy = _registration.register()
