"""What a process of either job asks the compute service, and its presence there.

Used by `config.compute_client`, `attendance` and `worker`. Every request has its own short connection and a deadline;
a presence is a connection that stays. Errors of the service become those of `horovod._core.errors`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core.errors import (
    CollectiveTimeoutError,
    HorovodError,
    HorovodInternalError,
    InvalidArgumentError,
    PeerLostError,
    ShutdownError,
)
from horovod.tensorflow.data import channel
from horovod.tensorflow.data.addresses import joined
from horovod.tensorflow.data.channel import Channel, ChannelError, ClosedError, LateError, StrangerError

_PAUSES_S: Final = (0.05, 0.2, 0.8)  # before a connection that was closed at once is tried again
_GRACE_S: Final = channel.HANDSHAKE_S  # for the service's own answer "too late" to arrive first
_ERRORS: Final[dict[str, type[HorovodError]]] = {
    "invalid": InvalidArgumentError,
    "late": CollectiveTimeoutError,
    "failed": PeerLostError,
    "shutdown": ShutdownError,
}

log = logging.getLogger("horovod")


class ComputeClient:
    """Talks to the compute service. Its methods raise:

    PeerLostError: the compute job is gone (a config file of an earlier job looks the same), or one of its ranks died.
    CollectiveTimeoutError: what was waited for did not happen within `timeout`.
    ShutdownError: the compute job was asked to end.
    InvalidArgumentError: a request that does not fit the compute job.
    """

    def __init__(self, endpoints: Sequence[tuple[str, int]], key: bytes, timeout: float, verbose: int) -> None:
        """
        Args:
            endpoints: (address, port) of the service; the first that answers is taken.
            key: of the config.
            timeout: seconds that every wait may take.
            verbose: see `TfDataServiceConfig.compute_client`.
        """
        self._endpoints = tuple(endpoints)
        self._key = key
        self._timeout = timeout
        self._verbose = verbose

    def shutdown(self) -> None:
        """Tells the compute job to end. Call it on one rank, when all ranks have taken their last element.

        A compute job that has ended by itself meanwhile is an error (PeerLostError) like any other.
        """
        with contextlib.suppress(ShutdownError):  # another rank was faster
            self._ask({"do": "shutdown", "message": f"The shutdown was requested by {_where()}."})

    def answers(self) -> bool:
        """Whether the compute job that wrote the config is there."""
        try:
            self._connect().close()
        except PeerLostError:
            return False
        return True

    def join(self, role: str, rank: int) -> Presence:
        """Makes this process known for as long as the presence is open."""
        request = {"do": "join", "role": role, "rank": rank, "where": _where()}
        talk = self._connect()
        try:
            answer = self._exchange(talk, request, 0.0)
            return Presence(talk, int(answer["member"]), self._names())
        except BaseException:
            talk.close()
            raise

    def announce_dispatcher(self, member: int, dispatcher: int, address: str) -> int:
        """This process runs a dispatcher at `address` ("host:port").

        Returns:
            Its generation, which tells it from later ones of its number.
        """
        request = {"do": "dispatcher", "member": member, "dispatcher": dispatcher, "address": address}
        return int(self._ask(request)["generation"])

    def retire_dispatcher(self, generation: int) -> None:
        """This process is about to stop a dispatcher; returns when its workers have stopped, or `timeout` is over."""
        self._ask({"do": "retire", "generation": generation, "wait": self._timeout}, self._timeout)

    def announce_worker(self, member: int, generation: int) -> None:
        """This compute rank's worker serves a dispatcher."""
        self._ask({"do": "worker", "member": member, "generation": generation})

    def withdraw_worker(self, member: int, generation: int) -> None:
        """This compute rank's worker has stopped."""
        self._ask({"do": "worker stopped", "member": member, "generation": generation})

    def wait_for_dispatcher(self, dispatcher: int, limited: bool = True) -> tuple[str, int]:
        """Waits until a dispatcher runs; without `limited`, as long as the data service lives.

        Returns:
            ("host:port", generation).
        """
        self._say(f"waiting for dispatcher {dispatcher}")
        wait_s = self._timeout if limited else None
        answer = self._ask({"do": "await dispatcher", "dispatcher": dispatcher, "wait": wait_s}, wait_s)
        return str(answer["address"]), int(answer["generation"])

    def wait_for_workers(self, dispatcher: int) -> None:
        """Waits until all workers of a dispatcher serve it."""
        self._say(f"waiting for the workers of dispatcher {dispatcher}")
        self._ask({"do": "await workers", "dispatcher": dispatcher, "wait": self._timeout}, self._timeout)

    def wait_for_end_of_dispatcher(self, generation: int) -> None:
        """Returns when a dispatcher is about to stop; waits as long as the data service lives."""
        self._ask({"do": "await end", "generation": generation}, None)

    def wait_for_others_to_leave(self, member: int) -> None:
        """Waits until no other training rank is present."""
        self._say("waiting for the other training ranks to leave tf_data_service")
        self._ask({"do": "await others", "member": member, "wait": self._timeout}, self._timeout)

    def meet(self, topic: str, member: int, size: int) -> int:
        """Waits for all training ranks. Collective over the `size` training ranks.

        Returns:
            A number that is equal on all ranks and that no other meeting has.
        """
        self._say(f"waiting for {size} training ranks to call {topic}")
        request = {"do": "meet", "topic": topic, "member": member, "size": size, "wait": self._timeout}
        return int(self._ask(request, self._timeout)["round"])

    def _names(self) -> str:
        return ", ".join(joined(host, port) for host, port in self._endpoints)

    def _say(self, text: str) -> None:
        if self._verbose >= 1:
            log.info("data service: %s", text)

    def _ask(self, request: dict[str, Any], wait_s: Optional[float] = 0.0) -> dict[str, Any]:
        with self._connect() as talk:
            return self._exchange(talk, request, wait_s)

    def _exchange(self, talk: Channel, request: dict[str, Any], wait_s: Optional[float]) -> dict[str, Any]:
        if self._verbose >= 2:
            log.info("data service: request %s", request)
        try:
            talk.send(request)
            answer = talk.receive(None if wait_s is None else wait_s + _GRACE_S)
        except ChannelError as error:
            raise self._gone(f"stopped answering ({error}); its rank 0 has probably died") from error
        if "error" in answer:
            raise _ERRORS.get(answer["error"], HorovodInternalError)(str(answer.get("message")))
        return answer

    def _connect(self) -> Channel:
        for pause_s in (*_PAUSES_S, None):
            problems: list[Exception] = []
            for host, port in self._endpoints:
                try:
                    return channel.connect(host, port, self._key, self._timeout)
                except (ChannelError, OSError) as error:
                    problems.append(error)
            # A service with too many visitors closes connections; nothing else gets better by trying again.
            if pause_s is None or not any(isinstance(problem, ClosedError) for problem in problems):
                break
            time.sleep(pause_s)
        raise self._gone(f"{_fact(problems)} ({'; '.join(map(str, problems))}){_cause(problems)}")

    def _gone(self, fact: str) -> PeerLostError:
        return PeerLostError(
            f"The compute job at {self._names()} {fact}. Start the compute job (again), and the training job once it "
            "has written its config file."
        )


def _fact(problems: Sequence[Exception]) -> str:
    if any(isinstance(problem, StrangerError) for problem in problems):
        return "is not the one that wrote the config"
    busy = any(isinstance(problem, ChannelError) for problem in problems)
    return "takes connections, but does not prove that it is the one" if busy else "does not answer"


def _cause(problems: Sequence[Exception]) -> str:
    silent = any(isinstance(problem, (ClosedError, LateError)) for problem in problems)
    others = "; too many connections that say nothing reach it (a port scanner?), or another program has its port now"
    return others if silent else "; the config file was left by an earlier compute job"


class Presence:
    """A connection by which the compute service knows that this process lives. `close` may be called twice.

    Attributes:
        member: this process's number there.
        local_host: the address by which this process's host is reached from the service's host.
    """

    def __init__(self, talk: Channel, member: int, service: str) -> None:
        self.member = member
        self.local_host = talk.local_host
        self._talk = talk
        self._service = service

    def wait_for_end(self) -> tuple[str, str]:
        """Blocks until the data service is over or this presence is closed.

        Returns:
            ("shutdown" or "failed", why).
        """
        try:
            message = self._talk.receive(None)
        except ChannelError:
            return "failed", (
                f"The compute service at {self._service} died: rank 0 of the compute job, which runs it, is gone. "
                "Start both jobs again."
            )
        return str(message.get("end")), str(message.get("message"))

    def close(self, reason: str = "it is done") -> None:
        """Leaves in order; `reason` is reported to others if they still need this process."""
        with contextlib.suppress(ChannelError):
            self._talk.send({"reason": reason})
        self._talk.close()


def _where() -> str:
    return f"{socket.gethostname()}, pid {os.getpid()}"
