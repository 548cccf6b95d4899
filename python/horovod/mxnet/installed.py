"""The import of MXNet, or the error that says what is missing. The package imports this before everything else."""

from __future__ import annotations

from typing import Final

from horovod._core.frameworks import require

_VERSION: Final = "1.9.1"
_REMEDY: Final = (
    "pip install mxnet==1.9.1 numpy==1.23.5, on Python 3.11 or older, or reduce NumPy arrays with horovod.numpy"
)

try:
    _mxnet = require("mxnet", "MXNet", "horovod.mxnet")
except AttributeError as error:  # np.bool, which NumPy has dropped
    raise ImportError(f"MXNet cannot be imported: {error}. It needs NumPy before 1.24. Remedy: {_REMEDY}.") from error
if _mxnet.__version__ != _VERSION:
    raise ImportError(
        f"horovod.mxnet works with MXNet {_VERSION}, whose engine and arrays it knows. "
        f"Installed: {_mxnet.__version__}. Remedy: {_REMEDY}."
    )
if _mxnet.util.getenv("MXNET_ENGINE_TYPE") == "NaiveEngine":
    raise ImportError(
        "horovod.mxnet needs an asynchronous engine of MXNet, because several collectives are under way at once. "
        "MXNET_ENGINE_TYPE is NaiveEngine; unset it."
    )
