"""Makes the backend "horovod" known to torch.distributed. `register` is the wheel's entry point in the group
"torch.backends", which PyTorch (2.5 and later) calls at the end of `import torch`; `horovod.torch.distributed` calls it
where there is no entry point, as in a checkout.

Each `import torch` runs this file, so it imports nothing; what it registers is imported when a program asks for it.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

__all__ = ["register"]

NAME: Final = "horovod"
_MAKER: Final = "horovod.torch.distributed.registration"


def register() -> None:
    """Registers the backend and its init_method, unless this PyTorch has no torch.distributed."""
    distributed: Any = importlib.import_module("torch.distributed")
    if distributed.is_available() and NAME not in distributed.Backend.backend_list:
        distributed.Backend.register_backend(NAME, _make_group, extended_api=True, devices=["cpu"])
        importlib.import_module("torch.distributed.rendezvous").register_rendezvous_handler(NAME, _meet)


def _make_group(options: Any, backend_options: Any = None) -> Any:
    return importlib.import_module(_MAKER).make_group(options, backend_options)


def _meet(url: str, timeout: Any = None, **options: Any) -> Any:
    return importlib.import_module(_MAKER).meet(url, timeout, **options)
