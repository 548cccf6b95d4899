"""One MPI library, opened, with typed functions that raise. Used by gathering and session.

It knows no job and no thread: `session` decides which thread calls what.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Optional

from horovod._net.clusters.launchers import HANGING_OPEN_MPI, HANGING_REMARK, MPICH, OPEN_MPI
from horovod._net.failures import MeetingError
from horovod._net.mpi.finding import SETTING, candidates
from horovod._net.mpi.handles import Status, Threads, bind, handles_of

_VERSION_BYTES: Final = 8192 + 1  # the most that any library writes
_ERROR_BYTES: Final = 512 + 1
_TAG: Final = 31_337  # of making communicators, which is not a message of anybody's
_INTELS_NETWORK: Final = "libfabric.so.1"
_INTELS_DRIVERS: Final = "lib*-fi.so"

_FAMILIES: Final = ((OPEN_MPI, OPEN_MPI), ("IBM Spectrum MPI", OPEN_MPI), ("HPE MPI", "HPE MPI"))


class World(NamedTuple):
    """This process among those that the MPI library has started with."""

    rank: int
    size: int


class Library:
    """An opened library.

    Args:
        path: of the file, or a name that the system's loader knows.
        why: how it was found, in words.

    Attributes:
        path, why: as given.
        version: the first line of what it says of itself.

    Raises:
        MeetingError: it cannot be opened, or is none.
    """

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        try:
            _load_what_it_asks_for(path)
            # Open MPI's plug-ins take its functions from what is loaded globally.
            self._functions: Any = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise MeetingError(f"{path} cannot be opened: {error}") from error
        self._handles = handles_of(self._functions, path)
        bind(self._functions, self._handles)
        said = self._text("MPI_Get_library_version", _VERSION_BYTES).partition("\n")[0]
        self.version = " ".join(said.replace("Version:", "").split())

    @property
    def family(self) -> str:
        """Whose launcher can start ranks that use it: Open MPI's, or any of those of MPICH's kin."""
        return next((family for name, family in _FAMILIES if name in self.version), MPICH)

    def described(self) -> str:
        """For messages: what it is, where, and how it was found."""
        return f"{self.version.partition(',')[0]} ({self.path}; {self.why})"

    def warning(self) -> str:
        """What is known to be wrong with it; usually nothing."""
        if self.family == OPEN_MPI and re.search(rf"\bv{re.escape(HANGING_OPEN_MPI)}\b", self.version):
            return HANGING_REMARK
        return ""

    @property
    def style(self) -> str:
        """The name of its binary interface, as in `handles`."""
        return self._handles.style

    @property
    def threads(self) -> Threads:
        """The levels of threads, as this library numbers them."""
        return self._handles.threads

    # ---- life

    def initialized(self) -> bool:
        """Somebody has initialised it in this process."""
        return bool(self._number("MPI_Initialized"))

    def finalized(self) -> bool:
        """Somebody has ended it in this process; it cannot be started again."""
        return bool(self._number("MPI_Finalized"))

    def init(self, threads: int) -> int:
        """Initialises it; blocks until all ranks that the library knows of have called this.

        Returns:
            The level of threads that it grants.
        """
        granted = ctypes.c_int(0)
        self._call("MPI_Init_thread", None, None, threads, ctypes.byref(granted))
        return granted.value

    def thread_level(self) -> int:
        """The level of threads that it grants, however it was initialised."""
        return self._number("MPI_Query_thread")

    def is_main_thread(self) -> bool:
        """This thread has initialised it."""
        return bool(self._number("MPI_Is_thread_main"))

    def finalize(self) -> None:
        """Ends it; blocks until all ranks have called this."""
        self._call("MPI_Finalize")

    # ---- communicators

    def world(self) -> World:
        """This process among all of them."""
        comm = self._handles.comm_world
        return World(self._number("MPI_Comm_rank", comm), self._number("MPI_Comm_size", comm))

    def communicator(self, ranks: Optional[Sequence[int]]) -> Any:
        """A communicator of our own, whose messages meet nobody else's and whose errors are returned.

        Collective over the ranks, and blocks.

        Args:
            ranks: of the world, in the order that they are to have; None: all.
        """
        made = self._handles.kind()
        if ranks is None:
            self._call("MPI_Comm_dup", self._handles.comm_world, ctypes.byref(made))
        else:
            world, group = self._handles.kind(), self._handles.kind()
            self._call("MPI_Comm_group", self._handles.comm_world, ctypes.byref(world))
            listed = (ctypes.c_int * len(ranks))(*ranks)
            self._call("MPI_Group_incl", world, len(ranks), listed, ctypes.byref(group))
            self._call("MPI_Comm_create_group", self._handles.comm_world, group, _TAG, ctypes.byref(made))
            for each in (group, world):
                self._call("MPI_Group_free", ctypes.byref(each))
        self._call("MPI_Comm_set_errhandler", made, self._handles.errors_return)
        return made

    def free(self, communicator: Any) -> None:
        """Gives a communicator back. Collective over its ranks."""
        self._call("MPI_Comm_free", ctypes.byref(communicator))

    # ---- data

    def start_allgather(self, communicator: Any, own: Any, every: Any, block_bytes: int) -> Any:
        """Begins to collect a block of each rank; the buffers must live until `done`."""
        byte, request = self._handles.byte, self._handles.kind()
        words = (own, block_bytes, byte, every, block_bytes, byte, communicator, ctypes.byref(request))
        self._call("MPI_Iallgather", *words)
        return request

    def start_broadcast(self, communicator: Any, buffer: Any, size_bytes: int) -> Any:
        """Begins to give rank 0's bytes to all; the buffer must live until `done`."""
        request = self._handles.kind()
        self._call("MPI_Ibcast", buffer, size_bytes, self._handles.byte, 0, communicator, ctypes.byref(request))
        return request

    def done(self, request: Any) -> bool:
        """Whether what was begun is over; makes it go on."""
        over = ctypes.c_int(0)
        self._call("MPI_Test", ctypes.byref(request), ctypes.byref(over), Status())
        return bool(over.value)

    # ---- calling

    def _number(self, name: str, *words: Any) -> int:
        value = ctypes.c_int(0)
        self._call(name, *words, ctypes.byref(value))
        return value.value

    def _text(self, name: str, room: int) -> str:
        text, length = ctypes.create_string_buffer(room), ctypes.c_int(0)
        self._call(name, text, ctypes.byref(length))
        return text.value.decode("utf-8", "replace")

    def _call(self, name: str, *words: Any) -> None:
        code = getattr(self._functions, name)(*words)
        if code:
            raise MeetingError(f"{name} of {self.path} failed: {self._reason(code)}.")

    def _reason(self, code: int) -> str:
        text, length = ctypes.create_string_buffer(_ERROR_BYTES), ctypes.c_int(0)
        if self._functions.MPI_Error_string(code, text, ctypes.byref(length)):
            return f"error {code}"
        return text.value.decode("utf-8", "replace").strip().rstrip(".")


def _load_what_it_asks_for(path: str) -> None:
    """Intel MPI loads its network library by its name alone when it starts, and that one its drivers; installed as a
    wheel, all of them lie beside it, where no loader looks."""
    folder = os.path.dirname(path)
    network = os.path.join(folder, _INTELS_NETWORK)
    if folder and os.path.isfile(network):
        if glob.glob(os.path.join(glob.escape(folder), _INTELS_DRIVERS)):
            os.environ.setdefault("FI_PROVIDER_PATH", folder)
        ctypes.CDLL(network)


def open_library(named: Optional[str], family: str, environ: Mapping[str, str]) -> Library:
    """Finds and opens the library of this job's MPI.

    Args:
        named: by the user; None: it is looked for.
        family: of the launcher, where that is one of an MPI; else empty, and every library will do.
        environ: of this process.

    Raises:
        MeetingError: there is none, or only of another MPI; says where it was looked for and what to set.
    """
    refused: dict[str, str] = {}
    for candidate in candidates(named, environ):
        try:
            library = Library(candidate.path, candidate.why)
        except MeetingError as error:
            if candidate.sure:
                raise
            if "/" in candidate.path:  # the system's loader is asked for names of which it may have none
                refused[candidate.path] = str(error)
            continue
        if not family or library.family == family:
            return library
        fact = f"{library.described()} does not belong to the MPI that started this process ({family})"
        if candidate.sure:
            raise MeetingError(f"{fact}. {_REMEDY}")
        refused[candidate.path] = fact
    kind = f" of the kind of {family}" if family else ""
    tried = " ".join(f"{each.rstrip('.')}." for each in refused.values())
    raise MeetingError(f"No MPI library{kind} was found. {tried}{' ' if tried else ''}{_REMEDY}")


_REMEDY: Final = (
    f"Set {SETTING} to the path of the libmpi.so that belongs to the launcher (on all hosts: mpirun -x {SETTING}=..., "
    "or mpiexec -genv), or start the job with horovodrun -H HOST:SLOTS,..., which needs no MPI."
)
