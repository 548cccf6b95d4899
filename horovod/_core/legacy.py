"""Small functions that only programs written for upstream's `horovod.common.util` call. Offered there; nothing of ours
uses them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any, Final, Optional, TypeVar

from horovod._core import context
from horovod._core.errors import HorovodVersionMismatchError, InvalidArgumentError
from horovod._core.reduce_ops import is_power_of_two

T = TypeVar("T")

# Extension -> the package without which it is of no use. Nothing is compiled per framework here.
_PACKAGE_OF: Final = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "mxnet": "mxnet",
    "keras": "keras",
    "jax": "jax",
    "numpy": "numpy",
}


def get_ext_suffix() -> str:
    """Suffix of Python extension modules of this interpreter, e.g. ".cpython-311-x86_64-linux-gnu.so"."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """True if `horovod.<ext_base_name>` can be used here: the core library loads and the framework is installed."""
    package = _PACKAGE_OF.get(ext_base_name)
    has_module = importlib.util.find_spec(f"horovod.{ext_base_name}") is not None
    return has_module and package is not None and importlib.util.find_spec(package) is not None and context.gloo_built()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: Any) -> None:
    """Raises ImportError if the support for a framework cannot be used here.

    Args:
        ext_name: e.g. "horovod.torch".
        ext_env_var, pkg_path: accepted for compatibility; nothing is compiled per framework.
        *args: likewise.
    """
    if not extension_available(ext_name.rpartition(".")[2]):
        raise ImportError(
            f"{ext_name} cannot be used: the framework is not installed, or the core library does not load here."
        )


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """True if tensors of this framework on a GPU are reduced there."""
    return extension_available(ext_base_name, verbose) and context.cuda_built()


def mpi_built(verbose: bool = False) -> bool:
    """See `horovod.torch.mpi_built`."""
    return context.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """See `horovod.torch.gloo_built`."""
    return context.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """True if NCCL is usable on this machine."""
    return context.nccl_built() != 0


def ddl_built(verbose: bool = False) -> bool:
    """See `horovod.torch.ddl_built`."""
    return context.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """See `horovod.torch.ccl_built`."""
    return context.ccl_built()


@contextlib.contextmanager
def env(**variables: Any) -> Iterator[None]:
    """Sets environment variables for the length of a `with` block; None removes one."""
    before: dict[str, Optional[str]] = {name: os.environ.get(name) for name in variables}
    _set_variables(variables)
    try:
        yield
    finally:
        _set_variables(before)


def num_rank_is_power_2(num_rank: int) -> bool:
    """True for 1, 2, 4, 8, ..."""
    return is_power_of_two(num_rank)


def split_list(values: Sequence[T], n: int) -> list[Sequence[T]]:
    """n lists of neighbours, of lengths that differ by one at most; the first ones are longer."""
    base, more = divmod(len(values), n)
    starts = [index * base + min(index, more) for index in range(n + 1)]
    return [values[start:stop] for start, stop in zip(starts, starts[1:])]


def is_iterable(x: Any) -> bool:
    """True if `iter(x)` works."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: Any, target: Any) -> bool:
    """True if version `ver` is `target` or later, by their first three numbers.

    Raises:
        InvalidArgumentError: not texts of the form "1.2.3" (more may follow).
    """
    return _numbers(ver) >= _numbers(target)


def check_installed_version(name: str, version: str, exception: Optional[BaseException] = None) -> None:
    """Raises HorovodVersionMismatchError if the package `name` is installed in another version."""
    from importlib import metadata

    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return
    if installed != version:
        raise HorovodVersionMismatchError(name, version, installed) from exception


def _numbers(version: Any) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version) if isinstance(version, str) else None
    if match is None:
        raise InvalidArgumentError(f"A version must be a text like '2.13.0'. Received: {version!r}.")
    return tuple(int(number) for number in match.groups())


def _set_variables(variables: dict[str, Any]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)
