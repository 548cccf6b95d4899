"""The compute service: a few threads in the compute job's rank 0 that the processes of both jobs connect to.

A connection is authenticated (`channel`) before a byte of it is parsed; then it asks questions, each of which is
answered when there is an answer or its time is over, or it becomes a *presence* ("join"), which lasts as long as its
process and hears how the data service ended. What it all means is in `registry`. Used by `compute_worker`.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.tensorflow.data import channel
from horovod.tensorflow.data.addresses import joined
from horovod.tensorflow.data.channel import Channel, ChannelError
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.registry import COMPUTE, FAILED, SHUTDOWN, TRAINING, RefusalError, Registry
from horovod.tensorflow.data.strangers import Strangers

_FAREWELL_S: Final = 5.0  # for the compute ranks to hear of a failure and to leave
_BETWEEN_TRIES_S: Final = 0.1  # while the system lacks what a connection needs

log = logging.getLogger("horovod")

Message = dict[str, Any]


class ComputeService:
    """Listens from construction to `close`.

    Attributes:
        config: what clients need to know, with a fresh key.
    """

    def __init__(
        self, dispatchers: int, workers_per_dispatcher: int, dispatcher_side: str, timeout: int, at: tuple[str, str]
    ) -> None:
        """
        Args:
            dispatchers, workers_per_dispatcher, dispatcher_side, timeout: see `TfDataServiceConfig`.
            at: interface and address to listen on.

        Raises:
            InvalidArgumentError: a number is wrong, or the address is none of this host's.
        """
        interface, host = at
        key = secrets.token_bytes(channel.KEY_BYTES)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        except OSError as error:
            raise InvalidArgumentError(
                f"The compute service cannot listen on {host}: {error}. Name an interface of this host with "
                "horovodrun --network-interface NIC."
            ) from error
        self._port = self._listener.getsockname()[1]
        try:
            self.config = TfDataServiceConfig(
                dispatchers, workers_per_dispatcher, dispatcher_side, {interface: [(host, self._port)]}, key, timeout
            )
        except InvalidArgumentError:
            self._listener.close()
            raise
        self._registry = Registry(dispatchers, workers_per_dispatcher, dispatcher_side)
        self._changed = threading.Condition()  # guards _registry and _presences
        self._presences: dict[int, Channel] = {}
        self._untold: list[Channel] = []  # presences that have not heard of an end
        self._strangers = Strangers()
        self._told = self._lack_told = False
        self._closed = threading.Event()
        self._busy = 0  # requests that are being answered
        self._answers: dict[str, Callable[[Message], Message]] = {
            "dispatcher": self._announce_dispatcher,
            "worker": lambda request: self._note_worker(request, self._registry.announce_worker),
            "await dispatcher": self._await_dispatcher,
            "await workers": self._await_workers,
            "await end": self._await_end,
            "await others": self._await_others,
            "worker stopped": lambda request: self._note_worker(request, self._registry.withdraw_worker),
            "retire": self._retire,
            "meet": self._meet,
            "shutdown": self._shutdown,
        }
        log.info("compute service listens on %s", joined(host, self._port))
        threading.Thread(target=self._accept, name="horovod compute service", daemon=True).start()

    def close(self) -> None:
        """Ends the data service for all who are still there, and stops listening."""
        self._end(FAILED, "The compute job ended before it was asked to; start both jobs again.")
        with self._changed:
            in_order = self._registry.outcome is not None and self._registry.outcome[0] == SHUTDOWN
            self._changed.wait_for(
                lambda: not self._registry.present(COMPUTE, besides=0) and not self._busy,
                self.config.timeout if in_order else _FAREWELL_S,
            )
            presences = list(self._presences.values())
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for presence in presences:
            presence.close()

    # ---- connections

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
                self._start_serving(sock)
            except ConnectionAbortedError:
                continue
            except (OSError, RuntimeError) as lack:  # of descriptors, of memory, of threads
                if self._closed.is_set():
                    return
                if not self._lack_told:
                    self._lack_told = True
                    log.warning("compute service: a connection must wait: %s", lack)
                self._closed.wait(_BETWEEN_TRIES_S)

    def _start_serving(self, sock: socket.socket) -> None:
        self._strangers.admit(sock)
        try:
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()
        except RuntimeError:
            self._strangers.forget(sock)
            sock.close()
            raise

    def _serve(self, sock: socket.socket) -> None:
        try:
            talk = channel.accept(sock, self.config.key)
        except (ChannelError, OSError) as error:
            if not self._told:  # once: a port scanner must not fill the log
                self._told = True
                log.warning("compute service: a connection was refused: %s", error)
            return
        finally:
            self._strangers.forget(sock)
        with talk, contextlib.suppress(ChannelError):
            while True:
                request = talk.receive(None)
                if request.get("do") == "join":
                    self._attend(talk, request)
                    return
                with self._changed:
                    self._busy += 1
                try:
                    talk.send(self._answer(request))
                finally:
                    with self._changed:
                        self._busy -= 1
                        self._changed.notify_all()

    def _answer(self, request: Message) -> Message:
        try:
            return self._answers[request["do"]](request)
        except RefusalError as refusal:
            return {"error": refusal.kind, "message": str(refusal)}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": "invalid", "message": f"The compute service cannot read this request: {error!r}."}

    def _attend(self, talk: Channel, request: Message) -> None:
        """Serves a presence until it ends."""
        try:
            with self._changed:
                member = self._registry.join(request["role"], int(request["rank"]), str(request["where"]))
                self._presences[member] = talk
                self._untold.append(talk)
                talk.send({"member": member})
        except RefusalError as refusal:
            talk.send({"error": refusal.kind, "message": str(refusal)})
            return
        goodbye: Optional[Message] = None
        with contextlib.suppress(ChannelError):
            goodbye = talk.receive(None)
        with self._changed:
            del self._presences[member]
            if talk in self._untold:
                self._untold.remove(talk)
            if goodbye is None:
                self._registry.lost(member)
            else:
                self._registry.leave(member, str(goodbye.get("reason", "")))
            self._changed.notify_all()
        self._tell_outcome()

    def _end(self, kind: str, message: str) -> None:
        with self._changed:
            self._registry.end(kind, message)
            self._changed.notify_all()
        self._tell_outcome()

    def _tell_outcome(self) -> None:
        """Once the data service is over, notifies every participant."""
        with self._changed:
            outcome = self._registry.outcome
            if outcome is None:
                return
            untold, self._untold = self._untold, []
        for presence in untold:
            with contextlib.suppress(ChannelError):
                presence.send({"end": outcome[0], "message": outcome[1]})

    # ---- answers

    def _wait(self, ready: Callable[[], bool], wait_s: Optional[float], late: Callable[[], str]) -> None:
        """Waits, under the lock, until `ready`.

        Raises:
            RefusalError: the data service ended, or the time is over.
        """
        self._changed.wait_for(lambda: self._registry.outcome is not None or ready(), wait_s)
        self._registry.check_alive()
        if not ready():
            raise RefusalError("late", late())

    def _announce_dispatcher(self, request: Message) -> Message:
        with self._changed:
            generation = self._registry.announce_dispatcher(
                request["member"], request["dispatcher"], str(request["address"])
            )
            self._changed.notify_all()
        return {"generation": generation}

    def _note_worker(self, request: Message, note: Callable[[int, int], None]) -> Message:
        with self._changed:
            note(request["member"], request["generation"])
            self._changed.notify_all()
        return {}

    def _await_dispatcher(self, request: Message) -> Message:
        number, wait_s = request["dispatcher"], request["wait"]
        side = self.config.dispatcher_side
        with self._changed:
            self._wait(
                lambda: self._registry.running(number) is not None,
                wait_s,
                lambda: (
                    f"Dispatcher {number} was not started by the {side} job within {wait_s:g} s; is that job running, "
                    f"with one dispatcher per training rank or one in all? --timeout (seconds) allows more time."
                ),
            )
            found = self._registry.dispatchers[number]
            return {"address": found.address, "generation": found.generation}

    def _await_workers(self, request: Message) -> Message:
        number, wait_s = request["dispatcher"], request["wait"]
        with self._changed:
            self._wait(
                lambda: self._registry.lacks_workers(number) <= 0,
                wait_s,
                lambda: (
                    f"Dispatcher {number} lacks {self._registry.lacks_workers(number)} of its "
                    f"{self.config.workers_per_dispatcher} workers after {wait_s:g} s; look at the compute job's "
                    "output, and give it more --timeout (seconds) if it is only slow."
                ),
            )
        return {}

    def _await_end(self, request: Message) -> Message:
        generation = request["generation"]
        with self._changed:
            self._wait(lambda: not self._registry.is_running(generation), None, str)
        return {}

    def _retire(self, request: Message) -> Message:
        generation = request["generation"]
        with self._changed:
            self._registry.retire(generation)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._registry.has_workers(generation), request["wait"])
        return {}

    def _await_others(self, request: Message) -> Message:
        member, wait_s = request["member"], request["wait"]

        def staying() -> list[Any]:
            return self._registry.present(TRAINING, member)

        with self._changed:
            # Also after a shutdown, which a rank may ask for while the others leave.
            self._changed.wait_for(lambda: self._registry.failed or not staying(), wait_s)
            if self._registry.failed:
                self._registry.check_alive()
            if staying():
                raise RefusalError(
                    "late",
                    f"{', '.join(map(str, staying()))} did not leave tf_data_service within {wait_s:g} s after the "
                    "rank that runs the dispatcher; leave it on all ranks at about the same time.",
                )
        return {}

    def _meet(self, request: Message) -> Message:
        topic, member, wait_s = str(request["topic"]), request["member"], request["wait"]
        with self._changed:
            meeting = self._registry.arrive(topic, member, request["size"])
            self._changed.notify_all()
            try:
                self._wait(
                    lambda: meeting.number is not None,
                    wait_s,
                    lambda: (
                        f"Training ranks {', '.join(map(str, meeting.missing()))} of {meeting.size} did not call "
                        f"{topic} within {wait_s:g} s; all ranks must call it, equally often."
                    ),
                )
            except RefusalError:
                self._registry.give_up(topic, meeting, member)
                raise
        return {"round": meeting.number}

    def _shutdown(self, request: Message) -> Message:
        self._end(SHUTDOWN, str(request.get("message", "")))
        return {}
