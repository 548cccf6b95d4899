"""Upstream's path of some small functions. See `horovod._core.compat.legacy`."""

from __future__ import annotations

from horovod._core.compat.legacy import (
    EXTENSIONS,
    ccl_built,
    check_extension,
    check_installed_version,
    ddl_built,
    env,
    extension_available,
    get_average_backwards_compatibility_fun,
    get_ext_suffix,
    get_extension_full_path,
    gloo_built,
    gpu_available,
    is_iterable,
    is_version_greater_equal_than,
    mpi_built,
    nccl_built,
    num_rank_is_power_2,
    split_list,
)
from horovod._core.compat.legacy import memoised as _cache

__all__ = [
    "EXTENSIONS",
    "_cache",
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_ext_suffix",
    "get_extension_full_path",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]
