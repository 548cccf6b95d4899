"""Tests of horovod._core.errors: the tree that users catch, and the class of each status."""

from __future__ import annotations

import pytest

from horovod._core import errors
from horovod._native import abi


@pytest.mark.parametrize(
    ("error", "parents"),
    [
        (errors.InvalidArgumentError, (errors.HorovodError, ValueError)),
        (errors.UnsupportedError, (errors.HorovodError, NotImplementedError, RuntimeError, ValueError)),
        (errors.BackendUnavailableError, (errors.HorovodError, RuntimeError)),
        (errors.HorovodInternalError, (errors.HorovodError, RuntimeError)),
        (errors.NotInitializedError, (errors.HorovodInternalError, ValueError)),
        (errors.ShutdownError, (errors.HorovodInternalError,)),
        (errors.PeerLostError, (errors.HorovodInternalError,)),
        (errors.CollectiveTimeoutError, (errors.HorovodInternalError,)),
        (errors.MismatchError, (errors.HorovodInternalError,)),
        (errors.ResourceError, (errors.HorovodInternalError,)),
        (errors.HostsUpdatedInterrupt, (RuntimeError,)),
        (errors.HorovodVersionMismatchError, (ImportError,)),
    ],
)
def test_the_tree(error: type[Exception], parents: tuple[type[Exception], ...]) -> None:
    assert all(issubclass(error, parent) for parent in parents)


def test_every_failing_status_has_its_own_class() -> None:
    failing = {name: code for name, code in abi.ENUMS["hvd_status"].items() if name not in ("OK", "IN_PROGRESS")}
    classes = {name: errors.error_class(code) for name, code in failing.items()}
    # A wrong handle is one more invalid argument to users; only the core's callers tell them apart.
    assert classes.pop("UNKNOWN_HANDLE") is errors.InvalidArgumentError
    assert len(set(classes.values())) == len(classes)
    assert classes["PEER_LOST"] is errors.PeerLostError and classes["INTERNAL"] is errors.HorovodInternalError
    assert errors.error_class(1234) is errors.HorovodInternalError
    error = errors.error_from_status(failing["MISMATCH"], "text")
    assert type(error) is errors.MismatchError and str(error) == "text"


def test_the_interrupt_is_no_error_and_carries_its_flag() -> None:
    assert not issubclass(errors.HostsUpdatedInterrupt, errors.HorovodError)
    assert errors.HostsUpdatedInterrupt(True).skip_sync and not errors.HostsUpdatedInterrupt().skip_sync


def test_the_version_mismatch_carries_its_facts() -> None:
    error = errors.HorovodVersionMismatchError("torch", "2.1", "2.13")
    assert (error.name, error.version, error.installed_version) == ("torch", "2.1", "2.13")
    assert "2.1" in str(error) and "2.13" in str(error)
