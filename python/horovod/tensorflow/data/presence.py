"""A process's place at a data service: it follows the board of both jobs, and posts what it does.

A thread carries out what comes (`registry`), so whatever this process waits for is seen here and nobody has to answer.
Made by `client`. Errors are those of `horovod._core.errors`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn

from horovod._core.errors import CollectiveTimeoutError, HorovodError, PeerLostError
from horovod._net.failures import ConnectError
from horovod._net.handshake.boards import forked
from horovod._net.handshake.boards.board_link import BoardLink
from horovod._net.handshake.boards.kept_board import NUMBER
from horovod._net.handshake.frames.links import Link
from horovod.tensorflow.data.registry import COMPUTE, FAILED, TRAINING, Dispatcher, Registry

# For an own command to come back. TensorFlow keeps the interpreter to itself while it stops a worker, 10 s and more
# where a reader is still connected; the service, which runs in a process that has a worker, is silent meanwhile.
ANSWER_S: Final = 60.0
_GOODBYE_S: Final = 5.0
_LOOK_MS: Final = 1000  # for what the kernel had no room for
_MOST_REASON_BYTES: Final = 3500  # so that it fits into an entry

log = logging.getLogger("horovod")


def gone(service: str, fact: str) -> PeerLostError:
    """The error for a compute job that is not there, or not any more."""
    return PeerLostError(
        f"The compute job at {service} {fact}. Start the compute job (again), and the training job once it has written "
        "its config file."
    )


class Presence:
    """Known to all from `join` to `close`. Any thread may call its methods, which raise:

    PeerLostError: the compute job is gone, or one of its ranks died.
    CollectiveTimeoutError: what was waited for did not happen within `timeout`.
    ShutdownError: the compute job was asked to end.
    InvalidArgumentError: a request that does not fit the compute job.

    Attributes:
        member: this process's number at the service.
        local_host: the address by which this process's host is reached from the service's host.
    """

    def __init__(
        self, link: Link, registry: Registry, service: str, timeout: float, verbose: int, deadline: float
    ) -> None:
        """
        Args:
            link: to the compute service, proven; it is this object's.
            registry: new.
            service: its address, for messages.
            timeout: seconds that every wait may take.
            verbose: see `TfDataServiceConfig.compute_client`.
            deadline: monotonic seconds, for all that stands on the board.
        """
        self.local_host = str(link.sock.getsockname()[0])
        self._link = link
        self._registry = registry
        self._service = service
        self._timeout = timeout
        self._verbose = verbose
        try:
            self._board = BoardLink(link, "it", deadline)
        except ConnectError as error:
            raise self._no_answer(_in_words(error)) from error
        forked.closed.add(self._board)
        self.member = int(self._board.get(NUMBER) or -1)
        self._commands = itertools.count()
        self._results: dict[str, Any] = {}  # of own commands
        self._ended = ""  # how the connection did
        self._changed = threading.Condition()  # guards all of these
        self._thread = threading.Thread(target=self._follow, name="horovod data service", daemon=True)
        self._thread.start()

    def join(self, role: str, rank: int) -> None:
        """Makes this process known."""
        self._do("join", role, rank, where())

    def close(self, reason: str = "it is done") -> None:
        """Leaves in order; `reason` is sent to others if they still need this process. May be called twice."""
        while len(json.dumps(reason)) > _MOST_REASON_BYTES:
            reason = reason[: len(reason) * 3 // 4]
        with contextlib.suppress(HorovodError):
            self._do("leave", reason, patience_s=_GOODBYE_S)
        self.hang_up()

    def hang_up(self) -> None:
        """Ends the connection, as the end of the process does. May be called twice."""
        with contextlib.suppress(OSError):
            self._link.sock.shutdown(socket.SHUT_RDWR)
        if self._thread is not threading.current_thread():
            self._thread.join()

    # ---- dispatchers and workers

    def announce_dispatcher(self, number: int, address: str) -> Dispatcher:
        """This process runs a dispatcher at `address` ("host:port")."""
        made: Dispatcher = self._do("dispatcher", number, address)
        return made

    def retire_dispatcher(self, dispatcher: Dispatcher) -> None:
        """This process is about to stop a dispatcher; returns when its workers have stopped, or `timeout` is over."""
        self._do("retire", dispatcher.generation)
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not dispatcher.workers, self._timeout)

    def announce_worker(self, dispatcher: Dispatcher) -> None:
        """This compute rank's worker serves a dispatcher."""
        self._do("worker", dispatcher.generation)

    def withdraw_worker(self, dispatcher: Dispatcher) -> None:
        """This compute rank's worker has stopped."""
        self._do("worker stopped", dispatcher.generation)

    def wait_for_dispatcher(self, number: int, limited: bool = True) -> Dispatcher:
        """Waits until a dispatcher runs; without `limited`, as long as the data service lives."""
        self._say(f"waiting for dispatcher {number}")
        found: Dispatcher = self._await(
            lambda: self._registry.running(number),
            lambda: (
                f"Dispatcher {number} was not started by the {self._registry.dispatcher_side} job within "
                f"{self._timeout:g} s; is that job running, with one dispatcher per training rank or one in all? "
                "--timeout (seconds) allows more time."
            ),
            limited,
        )
        return found

    def wait_for_workers(self, dispatcher: int) -> None:
        """Waits until all workers of a dispatcher serve it."""
        self._say(f"waiting for the workers of dispatcher {dispatcher}")
        self._await(
            lambda: self._registry.lacks_workers(dispatcher) <= 0,
            lambda: (
                f"Dispatcher {dispatcher} lacks {self._registry.lacks_workers(dispatcher)} of its "
                f"{self._registry.workers_per_dispatcher} workers after {self._timeout:g} s; look at the compute job's "
                "output, and give it more --timeout (seconds) if it is only slow."
            ),
        )

    def wait_for_end_of_dispatcher(self, dispatcher: Dispatcher) -> None:
        """Returns when a dispatcher is about to stop; waits as long as the data service lives."""
        self._await(lambda: dispatcher.retired, str, limited=False)

    # ---- others

    def wait_for_others_to_leave(self) -> None:
        """Waits until no other training rank is present; also after a shutdown, which a rank may ask for while the
        others leave, but then not for longer than the service is there."""
        self._say("waiting for the other training ranks to leave tf_data_service")
        with self._changed:
            self._changed.wait_for(
                lambda: self._registry.failed or self._ended or not self._others_staying(), self._timeout
            )
            if self._registry.failed or (self._ended and self._registry.outcome is None):
                self._raise_end()
            staying = self._others_staying()
            if staying and not self._ended:
                raise CollectiveTimeoutError(
                    f"{', '.join(map(str, staying))} did not leave tf_data_service within {self._timeout:g} s after "
                    "the rank that runs the dispatcher; leave it on all ranks at about the same time."
                )

    def meet(self, topic: str, size: int) -> int:
        """Waits for all training ranks. Collective over the `size` training ranks.

        Returns:
            A number that is equal on all ranks and that no other meeting has.
        """
        self._say(f"waiting for {size} training ranks to call {topic}")
        meeting = self._do("meet", topic, size)
        try:
            self._await(
                lambda: meeting.number,
                lambda: (
                    f"Training ranks {', '.join(map(str, meeting.missing()))} of {size} did not call {topic} within "
                    f"{self._timeout:g} s; all ranks must call it, equally often."
                ),
            )
        except CollectiveTimeoutError:
            self._do("give up", topic)
            if meeting.number is None:  # else the last one has just come
                raise
        return int(meeting.number)

    # ---- the end

    def end(self, kind: str, message: str) -> None:
        """Ends the data service for all, unless it has ended already."""
        self._do("end", kind, message)

    def wait_for_end(self) -> tuple[str, str]:
        """Blocks until the data service is over or the connection has ended.

        Returns:
            ("shutdown" or "failed", why).
        """
        with self._changed:
            self._changed.wait_for(lambda: self._registry.outcome or self._ended)
            return self._registry.outcome or (
                FAILED,
                f"The compute service at {self._service} died: rank 0 of the compute job, which runs it, is gone. "
                "Start both jobs again.",
            )

    def wait_for_compute_ranks_to_leave(self, after_failure_s: float) -> None:
        """Of the compute service, which has ended: returns when they have, or the time is over."""
        with self._changed:
            patience_s = after_failure_s if self._registry.failed else self._timeout
            self._changed.wait_for(lambda: self._ended or not self._registry.present(COMPUTE, besides=-1), patience_s)

    # ---- the board

    def _do(self, *command: Any, patience_s: float = ANSWER_S) -> Any:
        """Posts a command; returns what came of it, or raises it, once all commands before it have been followed."""
        if self._verbose >= 2:
            log.info("data service: request %s", command)
        with self._changed:
            key = f"do.{self.member}.{next(self._commands)}"
            with contextlib.suppress(ConnectError):  # the thread hears it too, after what has come until then
                self._board.post(key, json.dumps(command))
            self._changed.wait_for(lambda: key in self._results or self._ended, patience_s)
            if key not in self._results:
                raise self._no_answer(self._ended or "it does not answer")
            result = self._results.pop(key)
        if isinstance(result, HorovodError):
            raise result
        return result

    def _await(self, ready: Callable[[], Any], late: Callable[[], str], limited: bool = True) -> Any:
        """Waits until `ready` gives something, which it returns."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._registry.outcome or self._ended or ready(), self._timeout if limited else None
            )
            if self._registry.outcome or self._ended:
                self._raise_end()
            found = ready()
            if not found:
                raise CollectiveTimeoutError(late())
            return found

    def _raise_end(self) -> NoReturn:
        self._registry.check_alive()
        raise self._no_answer(self._ended)

    def _no_answer(self, how: str) -> PeerLostError:
        return gone(self._service, f"stopped answering ({how}); its rank 0 has probably died")

    def _others_staying(self) -> list[Any]:
        return self._registry.present(TRAINING, self.member)

    def _follow(self) -> None:
        poller = select.poll()
        poller.register(self._board, select.POLLIN)
        while self._take_news():
            poller.poll(_LOOK_MS)

    def _take_news(self) -> bool:
        """False when nothing more can come."""
        own = f"do.{self.member}."
        with self._changed:
            try:
                for key, value in self._board.news():
                    result = self._registry.apply(key, value)
                    if key.startswith(own):
                        self._results[key] = result
            except ConnectError as error:
                self._ended = _in_words(error)
                self._board.close()
            self._changed.notify_all()
            return not self._ended

    def _say(self, text: str) -> None:
        if self._verbose >= 1:
            log.info("data service: %s", text)


def _in_words(error: ConnectError) -> str:
    return str(error).rstrip(".")


def where() -> str:
    """This process, for messages."""
    return f"{socket.gethostname()}, pid {os.getpid()}"
