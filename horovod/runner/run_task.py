"""The program of a rank of `horovod.run`: `python -m horovod.runner.run_task`.

Loads the function from the job's private directory, calls it and leaves the result there. It uses only files that this
user's own launcher has put into a directory that nobody else can write, so unpickling them is safe.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any, Final

FUNCTION_FILE: Final = "function.pkl"


def result_file(rank: int) -> str:
    """Name of the file with the pickled pair (succeeded, value or traceback text) of a rank."""
    return f"result-of-{rank}.pkl"


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that appears whole or not at all, and that only this user can read."""
    draft = path.with_name(path.name + ".part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    draft.rename(path)


def main() -> int:
    """Returns the exit code: 0, or 1 when the function raised."""
    directory = Path(os.environ["HOROVOD_RENDEZVOUS_DIR"])
    answer = directory / result_file(int(os.environ["HOROVOD_RANK"]))
    try:
        value = _call(directory)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (0, None):
            value = None
        else:
            text = traceback.format_exc()
            write_private(answer, pickle.dumps((False, text)))
            raise
    write_private(answer, _dumps((True, value)))
    return 0


def _call(directory: Path) -> Any:
    data = (directory / FUNCTION_FILE).read_bytes()
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
