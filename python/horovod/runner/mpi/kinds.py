"""Which MPI a mpirun belongs to, from what its --version prints. Pure.

Used by `launchers.mpirun` and `lines`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from horovod._core.errors import UnsupportedError

OPEN_MPI: Final = "Open MPI"
SPECTRUM_MPI: Final = "Spectrum MPI"
MPICH: Final = "MPICH"
INTEL_MPI: Final = "Intel MPI"

_VERSION: Final = r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})"
_PATTERNS: Final = (
    (SPECTRUM_MPI, re.compile(rf"^\S+ \(IBM Spectrum MPI\) {_VERSION}", re.MULTILINE)),
    (OPEN_MPI, re.compile(rf"^\S+ \((?:Open MPI|OpenRTE)\) {_VERSION}", re.MULTILINE)),
    (INTEL_MPI, re.compile(rf"^Intel\(R\) MPI Library\b.{{0,80}}\bVersion {_VERSION}", re.MULTILINE)),
    # MPICH's own Hydra, and that of its descendants, such as MVAPICH.
    (MPICH, re.compile(rf"^HYDRA build details:\s+Version:\s+{_VERSION}", re.MULTILINE)),
)
_MOST: Final = 1 << 16


class Implementation(NamedTuple):
    """An MPI.

    Attributes:
        kind: one of the names above.
        version: its numbers.
    """

    kind: str
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))}"


def implementation(text: str, program: str = "mpirun") -> Implementation:
    """Tells the implementation.

    Args:
        text: what `mpirun --version` has printed.
        program: that printed it, for messages.

    Raises:
        UnsupportedError: it is not one of these.
    """
    for kind, pattern in _PATTERNS:
        found = pattern.search(text[:_MOST])
        if found:
            return Implementation(kind, tuple(map(int, found.group(1).split("."))))
    said = " ".join(text[:200].split())
    raise UnsupportedError(
        f"{program} belongs to none of the supported MPIs ({OPEN_MPI}, {SPECTRUM_MPI}, {MPICH} and {INTEL_MPI}): "
        f"its --version says {said!r}. Start the ranks with it yourself: {program} ... python train.py"
    )
