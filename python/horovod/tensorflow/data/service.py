"""The compute service: a board, kept by the compute job's rank 0, that the processes of both jobs connect to.

A connection proves the key of the config before anything that it says is looked at (`horovod._net.handshake`). What
stands on the board, and what it means, is in `registry`. Used by `compute_worker`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Final

from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._net.handshake.boards.kept_board import KeptBoard
from horovod._net.secret import new_secret
from horovod.tensorflow.data.addresses import joined
from horovod.tensorflow.data.client import credentials_of_service
from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.registry import FAILED

_FAREWELL_S: Final = 5.0  # for the compute ranks to hear of a failure and to leave
_BACKLOG: Final = 1024

log = logging.getLogger("horovod")


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
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise InvalidArgumentError(
                f"The compute service cannot listen on {host}: {error}. Name an interface of this host with "
                "horovodrun --network-interface NIC."
            ) from error
        port = listener.getsockname()[1]
        listener.setblocking(False)
        try:
            self.config = TfDataServiceConfig(
                dispatchers, workers_per_dispatcher, dispatcher_side, {interface: [(host, port)]}, new_secret(), timeout
            )
        except InvalidArgumentError:
            listener.close()
            raise
        self._board = KeptBoard(credentials_of_service(self.config.key), listener, None, "compute service")
        self._board.start()
        log.info("compute service listens on %s", joined(host, port))
        try:
            self._presence = self.config.compute_client(verbose=0).come()
        except BaseException:
            self._board.stop()
            raise

    def close(self) -> None:
        """Ends the data service for all that are still there, and stops listening."""
        with contextlib.suppress(HorovodError):
            self._presence.end(FAILED, "The compute job ended before it was asked to; start both jobs again.")
            self._presence.wait_for_compute_ranks_to_leave(_FAREWELL_S)
        self._presence.hang_up()
        self._board.stop()
