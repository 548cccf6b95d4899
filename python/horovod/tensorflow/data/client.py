"""Connects a process of either job with the compute service.

Used by `config.compute_client`, `attendance` and `worker`. What follows once the service has proven itself is in
`presence`.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from horovod._core.errors import PeerLostError
from horovod._net.failures import AuthenticationError, ProtocolError
from horovod._net.handshake import calling
from horovod._net.handshake.boards.kept_board import credentials_of
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import ROLE_BOARD
from horovod.tensorflow.data.addresses import joined
from horovod.tensorflow.data.presence import ANSWER_S, Presence, gone, where
from horovod.tensorflow.data.registry import SHUTDOWN, Registry

_JOB: Final = "data service"
_MEMBER: Final = 0
_KEEPER: Final = 1


def credentials_of_service(key: bytes) -> auth.Credentials:
    """Of the compute service, by the key of its config."""
    return credentials_of(key, _JOB, _KEEPER, _KEEPER)


class ComputeClient:
    """Asks the compute service. Its methods raise what `Presence` raises; a config file of an earlier compute job looks
    the same as one of a job that is gone.
    """

    def __init__(
        self,
        endpoints: Sequence[tuple[str, int]],
        key: bytes,
        timeout: float,
        verbose: int,
        new_registry: Callable[[], Registry],
    ) -> None:
        """
        Args:
            endpoints: (address, port) of the service; the first that answers is taken.
            key: of the config.
            timeout: seconds that every wait may take.
            verbose: see `TfDataServiceConfig.compute_client`.
            new_registry: of this data service, before anything has happened.
        """
        self._endpoints = tuple(endpoints)
        self._credentials = credentials_of(key, _JOB, _MEMBER, _KEEPER)
        self._timeout = timeout
        self._verbose = verbose
        self._new_registry = new_registry
        self._names = ", ".join(joined(host, port) for host, port in self._endpoints)

    def shutdown(self) -> None:
        """Tells the compute job to end. Call it on one rank, when all ranks have taken their last element.

        A compute job that has ended by itself meanwhile is an error (PeerLostError) like any other.
        """
        presence = self.come()
        try:
            presence.end(SHUTDOWN, f"The shutdown was requested by {where()}.")
        finally:
            presence.hang_up()

    def answers(self, patience_s: float = math.inf) -> bool:
        """Whether the compute job that wrote the config is there, and answers within this time and the timeout."""
        try:
            self._connect(time.monotonic() + min(self._timeout, patience_s)).close()
        except PeerLostError:
            return False
        return True

    def join(self, role: str, rank: int) -> Presence:
        """Makes this process known for as long as the presence is open."""
        presence = self.come()
        try:
            presence.join(role, rank)
            return presence
        except BaseException:
            presence.hang_up()
            raise

    def come(self) -> Presence:
        """Connects this process, known to nobody yet."""
        deadline = time.monotonic() + min(self._timeout, ANSWER_S)
        link = self._connect(deadline)
        return Presence(link, self._new_registry(), self._names, self._timeout, self._verbose, deadline)

    def _connect(self, deadline: float) -> Link:
        problems: list[Exception] = []
        for host, port in self._endpoints:
            try:
                address = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
                return calling.call(self._credentials, ROLE_BOARD, address, port, deadline)
            except AuthenticationError:
                problems.append(AuthenticationError("it does not hold the key of this config"))
            except (LinkClosedError, ProtocolError, OSError) as error:
                problems.append(error)
        raise gone(self._names, f"{_fact(problems)} ({'; '.join(map(str, problems))}){_cause(problems)}")


def _fact(problems: Sequence[Exception]) -> str:
    if any(isinstance(problem, (AuthenticationError, ProtocolError)) for problem in problems):
        return "is not the one that wrote the config"
    return "takes connections, but does not prove that it is the one" if _any_silent(problems) else "does not answer"


def _cause(problems: Sequence[Exception]) -> str:
    others = "; too many connections that say nothing reach it (a port scanner?), or another program has its port now"
    return others if _any_silent(problems) else "; the config file was left by an earlier compute job"


def _any_silent(problems: Sequence[Exception]) -> bool:
    return any(isinstance(problem, LinkClosedError) and not (problem.silent or problem.refused) for problem in problems)
