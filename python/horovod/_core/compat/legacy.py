"""Small functions that only programs written for upstream's `horovod.common.util` call. Offered there; nothing of ours
uses them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Final, Optional, TypeVar

from horovod._core.errors import HorovodVersionMismatchError, InvalidArgumentError
from horovod._core.frameworks import FRAMEWORKS
from horovod._core.life import context
from horovod._core.operations import reduce_ops
from horovod._later import MISSING

__all__ = [
    "EXTENSIONS", "ccl_built", "check_extension", "check_installed_version", "ddl_built", "env", "extension_available",
    "get_average_backwards_compatibility_fun", "get_ext_suffix", "get_extension_full_path", "gloo_built",
    "gpu_available", "is_iterable", "is_version_greater_equal_than", "mpi_built", "nccl_built", "num_rank_is_power_2",
    "split_list",
]  # fmt: skip

T = TypeVar("T")

# What upstream compiled an extension for.
EXTENSIONS: Final = ["tensorflow", "torch", "mxnet"]
# Whose tensors the core takes as they lie on a GPU: all of PyTorch's, those of TensorFlow's compiled functions.
_ON_DEVICES: Final = ("torch", "tensorflow")


def get_ext_suffix() -> str:
    """Suffix of Python extension modules of this interpreter, e.g. ".cpython-311-x86_64-linux-gnu.so"."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """True if `horovod.<ext_base_name>` can be used here: the core library loads and the framework is installed."""
    if ext_base_name not in FRAMEWORKS or f"horovod.{ext_base_name}" in MISSING:
        return False
    return importlib.util.find_spec(ext_base_name) is not None and context.gloo_built()


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Where upstream's extension of these names would lie beside the file `pkg_path`. Nothing is compiled per framework
    here, so there is no such file."""
    return os.path.join(os.path.dirname(os.path.abspath(pkg_path)), *args) + get_ext_suffix()


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
    """True if TensorFlow sees a GPU; for PyTorch, if its tensors on a GPU are reduced there."""
    if ext_base_name not in _ON_DEVICES or not extension_available(ext_base_name, verbose):
        return False
    if ext_base_name == "tensorflow":
        return bool(importlib.import_module("tensorflow").config.list_physical_devices("GPU"))
    return context.cuda_built() or context.rocm_built()


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
    """Sets environment variables for the length of a `with` block; one whose value is None is left alone."""
    given = {name: str(value) for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def num_rank_is_power_2(num_rank: int) -> bool:
    """True for 1, 2, 4, 8, ..."""
    return reduce_ops.is_power_of_two(num_rank)


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


def memoised(f: Callable[..., T]) -> Callable[..., T]:
    """A function that computes each answer once. Its arguments must be hashable."""
    return functools.lru_cache(maxsize=None)(f)


def get_average_backwards_compatibility_fun(operations: Any) -> Callable[[Optional[int], Optional[bool]], int]:
    """The rule for the deprecated boolean `average=`.

    Args:
        operations: has `Average` and `Sum` (`HorovodBasics()` does).

    Returns:
        A function of (op, average) that returns the operation meant, and raises InvalidArgumentError when both are
        given.
    """

    def operation(op: Optional[int], average: Optional[bool]) -> int:
        meant = reduce_ops.resolve(op, average)
        theirs: dict[int, int] = {reduce_ops.Average: operations.Average, reduce_ops.Sum: operations.Sum}
        return theirs.get(meant, meant)

    return operation


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """What HorovodVersionMismatchError says."""
    return str(HorovodVersionMismatchError(name, version, installed_version))


def is_version_greater_equal_than(ver: Any, target: Any) -> bool:
    """True if version `ver` is `target` or later, by their first three numbers; those that are left out are 0.

    Raises:
        InvalidArgumentError: not texts of the form "1.2" or "1.2.3" (more may follow).
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
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version) if isinstance(version, str) else None
    if match is None:
        raise InvalidArgumentError(f"A version must be a text like '2.13' or '2.13.0'. Received: {version!r}.")
    return tuple(int(number or 0) for number in match.groups())
