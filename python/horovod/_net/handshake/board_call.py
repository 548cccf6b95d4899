"""The connection of a rank to the board that another rank keeps (`kept_board`). Used by introduction and
meeting_at_address."""

from __future__ import annotations

import select
import time
from typing import Final, Optional

from horovod._net.failures import AuthenticationError, ConnectError, ProtocolError
from horovod._net.handshake import auth, proofs
from horovod._net.handshake.board_link import BoardLink
from horovod._net.handshake.codes import FrameCodes
from horovod._net.handshake.dialler import dial
from horovod._net.handshake.links import Link, LinkClosedError
from horovod._net.handshake.messages import ROLE_BOARD
from horovod._net.handshake.strangers import Comebacks
from horovod._net.handshake.visits import Visit

_LOOK_S: Final = 1.0
_KEEPER: Final = "Rank 0, which keeps the board of this job,"
_REMEDY: Final = (
    "Does a firewall let only ssh and MPI through, or is that network not the one that joins the hosts? Name the "
    "interface: HOROVOD_GLOO_IFACE."
)


def call(
    credentials: auth.Credentials,
    address: str,
    port: int,
    deadline: float,
    patient: bool = False,
    remedy: str = _REMEDY,
) -> BoardLink:
    """Connects this rank with the board of its job; it may have to come again, if strangers crowd there.

    Args:
        credentials: of this rank, by `kept_board.credentials_of`.
        address, port: where the keeper listens.
        deadline: monotonic seconds.
        patient: the keeper may still have to come: calls until the deadline.
        remedy: for a keeper that cannot be reached.

    Raises:
        ConnectError: the keeper cannot be reached, or does not hold the secret.
    """
    comebacks = Comebacks()
    while True:
        why = _try(credentials, address, port, deadline)
        if isinstance(why, Link):
            return BoardLink(why, _KEEPER, deadline)
        now = time.monotonic()
        if now >= deadline or not comebacks.wait(0, ROLE_BOARD, now, patient):
            raise ConnectError(
                f"Rank 0 cannot be reached at {address} port {port}, where it keeps the board of this job: {why}. "
                f"{remedy}",
                [0],
            )
        time.sleep(max(0.0, min(comebacks.next_s(), deadline) - now))
        comebacks.due(time.monotonic())


def _try(credentials: auth.Credentials, address: str, port: int, deadline: float) -> object:
    """The authenticated link, or why there is none."""
    try:
        link = Link(dial(address, port))
    except OSError as error:
        return error.strerror
    proof = auth.Connector(credentials, credentials.size - 1, ROLE_BOARD)
    visit = Visit(link, proof, 0, ROLE_BOARD, float("inf"))
    try:
        link.send(proof.hello)
        key = _key(visit, deadline)
    except LinkClosedError as error:
        link.close()
        return error
    except AuthenticationError as error:
        link.close()
        raise ConnectError(
            f"Whoever listens at {address} port {port}, where rank 0 keeps the board of this job, does not hold this "
            "job's secret: it is another program, or the hosts have different secrets.",
            [0],
        ) from error
    except ProtocolError as error:
        link.close()
        raise ConnectError(f"{_KEEPER} cannot be trusted: {error}", [0]) from error
    if key is None:
        link.close()
        return "it does not answer"
    link.protect(FrameCodes(key, connector=True))
    return link


def _key(visit: Visit, deadline: float) -> Optional[bytes]:
    """The key of the connection, once both have proven the secret; None: there was no time for it."""
    link = visit.link
    link.exact = True  # what follows the proof carries codes
    poller = select.poll()
    while time.monotonic() < deadline:
        poller.register(link, select.POLLIN | (select.POLLOUT if link.wants_to_write else 0))
        poller.poll(min(max(0.0, deadline - time.monotonic()), _LOOK_S) * 1000)
        link.flush()
        for message in link.receive():
            key = proofs.take(visit, message, lambda _: False)
            if key is not None:
                link.exact = False
                return key
    return None
