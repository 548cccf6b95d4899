"""The program of a rank of `horovod.run`: `python -m horovod.runner.run_task`.

Takes the function from the launcher, calls it and gives the result back (`shipment`). The function comes by a
descriptor that this user's own launcher has opened, so unpickling it is safe.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from typing import TYPE_CHECKING, Any, Union

from horovod.runner.processes.shipment import VARIABLE, Desk

if TYPE_CHECKING:
    from horovod.runner.mpi.parcels import FileDesk


def main() -> int:
    """Returns the exit code: 0, or 1 when the function raised."""
    desk = _desk()
    try:
        value = _call(desk.function)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (0, None):
            value = None
        else:
            desk.answer(pickle.dumps((False, traceback.format_exc())))
            raise
    desk.answer(_dumps((True, value)))
    return 0


def _desk() -> Union[Desk, FileDesk]:
    """Where the function comes from: descriptors, or the directory that ranks of mpirun get."""
    value = os.environ[VARIABLE]
    if os.sep not in value:
        return Desk(os.environ)
    from horovod.runner.mpi.parcels import FileDesk  # few jobs need it

    return FileDesk(os.environ.pop(VARIABLE), os.environ)


def _call(data: bytes) -> Any:
    path, rest = _load_path_first(data)
    sys.path += [place for place in path if place not in sys.path]
    function, args, kwargs = pickle.loads(rest)
    return function(*args, **kwargs)


def _load_path_first(data: bytes) -> tuple[list[str], bytes]:
    """The function may come from a module that is found only on the caller's path: that comes first, by itself."""
    size = int.from_bytes(data[:8], "little")
    return list(pickle.loads(data[8 : 8 + size])), data[8 + size :]


def _dumps(value: object) -> bytes:
    import cloudpickle  # type: ignore[import-untyped]

    return bytes(cloudpickle.dumps(value))


if __name__ == "__main__":
    sys.exit(main())
