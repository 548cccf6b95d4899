"""How the function of `horovod.run` reaches ranks that mpirun starts, and their results the launcher: by files in the
job's private directory, since they inherit no descriptor of the launcher. On the launcher's machine only.

Used by `launchers.mpirun` on the launcher's side, by `run_task` in the ranks; `shipment` is for all other ranks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from horovod._net.clusters.launchers import detect_placement
from horovod.runner.processes.shipment import VARIABLE, Shipment, framed, function_in

_FUNCTION: Final = "function"


def _result(directory: Path, rank: int) -> Path:
    return directory / f"result.{rank}"


def lay_out(shipment: Shipment, directory: Path) -> dict[str, str]:
    """Writes the function; the variable that tells the ranks where."""
    _write(directory / _FUNCTION, function_in(shipment.function_fd))
    return {VARIABLE: str(directory)}


def collect(shipment: Shipment, directory: Path, size: int) -> None:
    """Gives the shipment the results that have come."""
    for rank in range(size):
        stream, path = shipment.expect(rank), _result(directory, rank)
        if path.exists():
            stream.feed(path.read_bytes())


class FileDesk:
    """A rank's side. As `shipment.Desk`.

    Args:
        directory: of the job.
        environ: that tells the rank.
    """

    def __init__(self, directory: str, environ: Mapping[str, str]) -> None:
        self._place = _result(Path(directory), detect_placement(dict(environ)).rank)
        self.function = Path(directory, _FUNCTION).read_bytes()

    def answer(self, result: bytes) -> None:
        """Gives the result to the launcher."""
        written = self._place.with_suffix(f"{self._place.suffix}.new")
        _write(written, framed(result))
        written.rename(self._place)


def _write(path: Path, data: bytes) -> None:
    # The directory is this user's own, and nobody else has made a file of this name there.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
