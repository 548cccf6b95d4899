"""The file by which the training job finds and trusts the compute job.

Written by the compute job, read by the training job; `compute_service` re-exports the class. The file holds the secret
that both jobs prove to each other, so it is made with mode 0600, appears in one step, and is refused when others can
read it or own it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Optional

from horovod._core import settings
from horovod._core.errors import CollectiveTimeoutError, InvalidArgumentError
from horovod._core.integers import as_integer
from horovod._net.secret import SECRET_BYTES
from horovod.tensorflow.data.client import ComputeClient
from horovod.tensorflow.data.registry import Registry

SIDES: Final = ("compute", "training")
_DEFAULT_WAIT_S: Final = 60.0
_LOOK_S: Final = 0.1
_NEW_S: Final = 10.0
_ENDING_S: Final = 10.0
_MAX_FILE_BYTES: Final = 1 << 20

log = logging.getLogger("horovod")


@dataclass(frozen=True)
class TfDataServiceConfig:
    """How to reach a compute job, and what it is made of.

    Attributes:
        dispatchers: number of dispatchers: 1, or one per training task.
        workers_per_dispatcher: number of workers that serve each of them.
        dispatcher_side: "compute" or "training": which job runs the dispatchers.
        addresses: interface -> [(address, port), ...] of the compute service.
        key: 32 bytes; base64 text in the file.
        timeout: seconds that every step of the two jobs' meeting may take.

    Raises:
        InvalidArgumentError: a value is of the wrong kind or out of range.
    """

    dispatchers: int
    workers_per_dispatcher: int
    dispatcher_side: str
    addresses: dict[str, list[tuple[str, int]]]
    key: bytes = field(repr=False)
    timeout: int = 60

    def __post_init__(self) -> None:
        for name in ("dispatchers", "workers_per_dispatcher", "timeout"):
            number = as_integer(getattr(self, name))
            if number is None or number < 1:
                raise InvalidArgumentError(
                    f"{name} must be an integer of at least 1. Received: {getattr(self, name)!r}."
                )
            object.__setattr__(self, name, number)
        if self.dispatcher_side not in SIDES:
            raise InvalidArgumentError(
                f"dispatcher_side must be one of {', '.join(SIDES)}. Received: {self.dispatcher_side!r}."
            )
        if not isinstance(self.key, bytes) or len(self.key) != SECRET_BYTES:
            raise InvalidArgumentError(f"key must have {SECRET_BYTES} bytes.")
        if not _are_addresses(self.addresses):
            raise InvalidArgumentError(
                f"addresses must map interfaces to lists of (address, port). Received: {self.addresses!r}."
            )

    def compute_client(self, verbose: int = 1) -> ComputeClient:
        """What asks the compute job and tells it things; `.shutdown()` ends it.

        Args:
            verbose: 0: logs nothing; 1: what it waits for; 2: every request. At level INFO of logger "horovod".
        """
        endpoints = [endpoint for listed in self.addresses.values() for endpoint in listed]
        registry = functools.partial(Registry, self.dispatchers, self.workers_per_dispatcher, self.dispatcher_side)
        return ComputeClient(endpoints, self.key, self.timeout, verbose, registry)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them: the key in base64."""
        return {
            "dispatchers": self.dispatchers,
            "workers_per_dispatcher": self.workers_per_dispatcher,
            "dispatcher_side": self.dispatcher_side,
            "addresses": {name: [list(endpoint) for endpoint in listed] for name, listed in self.addresses.items()},
            "key": base64.b64encode(self.key).decode(),
            "timeout": self.timeout,
        }

    @staticmethod
    def from_dict(config: Mapping[str, Any]) -> TfDataServiceConfig:
        """The inverse of `to_dict`.

        Raises:
            InvalidArgumentError: a field is missing, unknown or wrong.
        """
        required = {"dispatchers", "workers_per_dispatcher", "dispatcher_side", "addresses", "key"}
        missing, unknown = required - set(config), set(config) - required - {"timeout"}
        if missing or unknown:
            raise InvalidArgumentError(
                f"A compute config lacks {', '.join(sorted(missing)) or 'nothing'} and has unknown "
                f"{', '.join(sorted(map(str, unknown))) or 'nothing'}; both jobs must run the same Horovod."
            )
        values = dict(config)
        try:
            values["key"] = base64.b64decode(values["key"], validate=True)
            values["addresses"] = {
                name: [(host, port) for host, port in listed] for name, listed in values["addresses"].items()
            }
        except (binascii.Error, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgumentError(f"A compute config's key or addresses cannot be read: {error}.") from error
        return TfDataServiceConfig(**values)

    def write(self, filename: str) -> None:
        """Writes the file, in one step and readable by this user only.

        Raises:
            InvalidArgumentError: it cannot be written there.
        """
        filename = os.path.abspath(filename)
        temporary = ""
        try:
            # mkstemp creates exclusively and with mode 0600; the rename replaces what an earlier job has left.
            descriptor, temporary = tempfile.mkstemp(prefix=os.path.basename(filename), dir=os.path.dirname(filename))
            with os.fdopen(descriptor, "w") as file:
                json.dump(self.to_dict(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, filename)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise InvalidArgumentError(f"The compute config {filename} cannot be written: {error.strerror}.") from error

    @staticmethod
    def read(filename: str, wait_for_file_creation: bool = False) -> TfDataServiceConfig:
        """Reads the file.

        Args:
            filename: that the compute job was started with.
            wait_for_file_creation: wait until it is there, for HOROVOD_START_TIMEOUT seconds (60 when not set).

        Raises:
            CollectiveTimeoutError: the file did not appear.
            InvalidArgumentError: there is no file, others may read it, or it is not a compute config.
        """
        if wait_for_file_creation:
            _wait_for(filename)
        try:
            # Not blocking on a fifo that somebody else has made: /tmp is everybody's.
            with open(os.open(filename, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
                _check_private(filename, os.fstat(file.fileno()))
                text = file.read(_MAX_FILE_BYTES)
        except FileNotFoundError as error:
            raise InvalidArgumentError(
                f"There is no compute config {filename}. Start the compute job with this file name, or wait for it "
                "with wait_for_file_creation=True."
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgumentError(f"The compute config {filename} cannot be read: {error}.") from error
        try:
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError("it is not an object")
            return TfDataServiceConfig.from_dict(content)
        except (ValueError, RecursionError) as error:  # brackets in brackets in brackets ...
            raise InvalidArgumentError(
                f"File {filename} is not a compute config: {error} Delete it and start the compute job again."
            ) from error


def remove_own(filename: str, config: TfDataServiceConfig) -> None:
    """Removes the file unless a later compute job has replaced it."""
    with contextlib.suppress(OSError, InvalidArgumentError):
        if TfDataServiceConfig.read(filename).key == config.key:
            os.unlink(filename)


def key_in(filename: str) -> Optional[bytes]:
    """The key of the compute job that has written the file; None: there is none that can be read."""
    with contextlib.suppress(OSError, InvalidArgumentError):
        return TfDataServiceConfig.read(filename).key
    return None


def remove_ended(filename: str, earlier: Optional[bytes] = None) -> None:
    """Removes the file of a compute job that does not answer any more, or stops to within a few seconds: that of one
    whose rank 0 was killed before it could.

    Args:
        filename: of the file.
        earlier: a key; the file of the compute job that has it stays.
    """
    deadline = time.monotonic() + _ENDING_S
    with contextlib.suppress(OSError, InvalidArgumentError):  # there is none, or it is not this user's
        config = TfDataServiceConfig.read(filename)
        if config.key == earlier:
            return
        while config.compute_client(verbose=0).answers(max(_LOOK_S, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_S)
        remove_own(filename, config)


def _are_addresses(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and any(value.values())
        and all(isinstance(name, str) and isinstance(listed, list) for name, listed in value.items())
        and all(
            isinstance(host, str) and host and type(port) is int and 0 < port < 65536
            for listed in value.values()
            for host, port in listed
        )
    )


def _check_private(filename: str, found: os.stat_result) -> None:
    """A file that others made could send this job to their servers; one that others read gives them the key."""
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArgumentError(
            f"The compute config {filename} is not a regular file; name one that a job has written."
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise InvalidArgumentError(
            f"The compute config {filename} belongs to user {found.st_uid}, this process runs as {os.geteuid()}; run "
            "both jobs as one user, and let the compute job write a file of another name."
        )
    if found.st_mode & 0o077:
        raise InvalidArgumentError(
            f"The compute config {filename} holds a secret, but its mode is {stat.S_IMODE(found.st_mode):04o}, open to "
            "other users. Restart the compute job, which makes it with mode 0600."
        )


def _wait_for(filename: str) -> None:
    """Returns when the file is there and was not left by a job that has ended."""
    chosen = settings.of_this_process()
    given = chosen.source("start_timeout_s") != "default"
    patience_s = chosen.start_timeout_s if given else _DEFAULT_WAIT_S
    deadline = time.monotonic() + patience_s
    refused = 0  # the file that was found to be left over
    while True:
        found = _identity(filename)
        if found and found != refused:
            if not _is_left_over(filename):
                return
            refused = found
            log.warning("compute config %s was left by a compute job that has ended; waiting for a new one", filename)
        if time.monotonic() >= deadline:
            fact = "was left by a compute job that has ended, and no new one came" if refused else "did not appear"
            raise CollectiveTimeoutError(
                f"The compute config {filename} {fact} within {patience_s:g} s; the compute job has not started, or "
                f"writes another file. Start it first (python -m horovod.tensorflow.data.compute_worker {filename}); "
                f"{settings.BY_NAME['start_timeout_s'].env} (seconds) allows more time."
            )
        time.sleep(_LOOK_S)


def _identity(filename: str) -> int:
    """Differs from that of the file that was there before; 0: there is none."""
    try:
        return os.stat(filename).st_mtime_ns
    except OSError:
        return 0


def _is_left_over(filename: str) -> bool:
    """True when a file that is not new belongs to no living compute job: one that starts now will replace it."""
    if time.time() - os.stat(filename).st_mtime < _NEW_S:
        return False
    try:
        return not TfDataServiceConfig.read(filename).compute_client(verbose=0).answers()
    except InvalidArgumentError:
        return False  # `read` will say what is wrong
