"""Upstream's path of some small functions. See `horovod._core.legacy`."""

from __future__ import annotations

from horovod._core.legacy import (
    ccl_built,
    check_extension,
    check_installed_version,
    ddl_built,
    env,
    extension_available,
    get_ext_suffix,
    gloo_built,
    gpu_available,
    is_iterable,
    is_version_greater_equal_than,
    mpi_built,
    nccl_built,
    num_rank_is_power_2,
    split_list,
)

__all__ = [
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_ext_suffix",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]
