"""The errors that users of this package can catch, as one tree.

::

    HorovodError
    |- InvalidArgumentError     (also ValueError)           the caller's fault on this rank
    |- UnsupportedError         (also NotImplementedError, which is a RuntimeError, and ValueError)
    |                                                       this operation or process set cannot do that
    |- BackendUnavailableError  (also RuntimeError)         nothing can run this, with one reason per backend
    |- HorovodInternalError     (also RuntimeError)         a collective failed
       |- NotInitializedError   (also ValueError)           call hvd.init() first
       |- ShutdownError                                     the engine is stopping
       |- PeerLostError                                     a rank died or closed: names it     } the two that elastic
       |- CollectiveTimeoutError                            a named deadline passed             } may retry
       |- MismatchError                                     ranks disagree: never retried
       |- ResourceError                                     this machine or process lacks something: never retried

    HostsUpdatedInterrupt       (RuntimeError)              a signal to the elastic loop, not an error
    HorovodVersionMismatchError (ImportError)               a framework other than the one compiled against

Used by every Python package above `horovod._native` and `horovod._net`, by the launcher too: so it imports nothing.
Messages follow one pattern: subject - fact - counterpart - remedy. It does not decide what is retried;
`horovod._core.training.elastic` does.
"""

from __future__ import annotations

__all__ = [
    "BackendUnavailableError",
    "CollectiveTimeoutError",
    "HorovodError",
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "InvalidArgumentError",
    "MismatchError",
    "NotInitializedError",
    "PeerLostError",
    "ResourceError",
    "ShutdownError",
    "UnsupportedError",
    "error_class",
    "error_from_status",
]


class HorovodError(Exception):
    """Any failure reported by this package."""

    # TensorFlow's AutoGraph looks for this name. It replaces other errors by a class that no `except` knows.
    ag_pass_through = True


class InvalidArgumentError(HorovodError, ValueError):
    """An argument is wrong on this rank."""


class UnsupportedError(HorovodError, NotImplementedError, ValueError):
    """The operation or process set cannot do what was asked. Programs catch such refusals as RuntimeError or as
    ValueError: it is both."""


class BackendUnavailableError(HorovodError, RuntimeError):
    """No backend can run the operation; the message gives one reason per backend."""


class HorovodInternalError(HorovodError, RuntimeError):
    """A collective failed."""


class NotInitializedError(HorovodInternalError, ValueError):
    """A call that needs `hvd.init()` came before it."""


class ShutdownError(HorovodInternalError):
    """The engine, or a rank that the operation needs, has shut down."""


class PeerLostError(HorovodInternalError):
    """A rank died or closed its connection."""


class CollectiveTimeoutError(HorovodInternalError):
    """A collective made no progress for longer than a named setting allows."""


class MismatchError(HorovodInternalError):
    """The ranks disagree on dtype, shape, operation or root. A mistake in the program: never retried."""


class ResourceError(HorovodInternalError):
    """This process or machine lacks memory, descriptors, threads or space; the message names the limit. It would lack
    them again: never retried."""


class HostsUpdatedInterrupt(RuntimeError):
    """The set of hosts has changed; the elastic loop re-initialises.

    Attributes:
        skip_sync: True when hosts were only removed, so that the surviving ranks' state needs no synchronisation.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("The set of hosts has changed.")
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """The installed framework is not the version that an extension was compiled against.

    Attributes:
        name: the framework's package name.
        version: the version compiled against.
        installed_version: the version found at run time.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(
            f"Horovod's {name} extension was compiled against {name} {version}, but {name} {installed_version} is "
            f"installed. Reinstall Horovod, or install {name} {version}."
        )
        # ImportError has its own `name` slot, which this attribute fills on purpose.
        self.name: str = name
        self.version = version
        self.installed_version = installed_version


_CLASS_OF_STATUS: dict[int, type[HorovodError]] = {
    1: InvalidArgumentError,
    2: UnsupportedError,
    3: BackendUnavailableError,
    4: HorovodInternalError,
    5: NotInitializedError,
    6: ShutdownError,
    7: PeerLostError,
    8: CollectiveTimeoutError,
    9: MismatchError,
    11: InvalidArgumentError,
    12: ResourceError,
}


def error_class(status: int) -> type[HorovodError]:
    """The class for an hvd_status code (include/horovod/horovod.h); HorovodInternalError for a code it does not
    know.
    """
    return _CLASS_OF_STATUS.get(status, HorovodInternalError)


def error_from_status(status: int, message: str) -> HorovodError:
    """The error to raise for a failed call of the core. Given to `horovod._native.engine.Engine`, which knows no
    class of its own.
    """
    return error_class(status)(message)
