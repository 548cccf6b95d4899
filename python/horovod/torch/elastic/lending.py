"""The tensors for a model at a restore: a commit's own where the model only copies from them, copies of the rest.

Later commits write to a commit's memory again, so code that keeps a part of it, as a `set_extra_state`, a hook or a
`load_state_dict` of a model's own may, would see their values in it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

__all__ = ["given_to"]


def given_to(module: torch.nn.Module, saved: Any) -> Any:
    """A saved state_dict, for this module's `load_state_dict` to do with as it likes.

    What had no shape yet when it was saved has no values to go back to: the module keeps those it has got since.
    """
    own: dict[str, torch.Tensor] = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    only_read = _only_reads(module)
    given, copied = copy.copy(saved), {}
    for name, value in saved.items():
        mine = own.get(name)
        if torch.nn.parameter.is_lazy(value):
            given[name] = value if mine is None or torch.nn.parameter.is_lazy(mine) else mine.detach()
        elif not only_read or type(value) is not torch.Tensor or type(mine) not in (torch.Tensor, torch.nn.Parameter):
            copied[name] = value
    # Together, so that what is one value stays one; but none is one with what is only read.
    given.update(copy.deepcopy(copied))
    return given


def _only_reads(module: torch.nn.Module) -> bool:
    """Whether loading parameters and buffers is torch's own code all through, which copies them."""
    if getattr(module.load_state_dict, "__func__", None) is not torch.nn.Module.load_state_dict:
        return False
    return all(_is_torchs(part) for part in module.modules())


def _is_torchs(part: torch.nn.Module) -> bool:
    load = getattr(part._load_from_state_dict, "__func__", None)
    return not part._load_state_dict_pre_hooks and getattr(load, "__module__", "").startswith("torch.nn.modules.")
