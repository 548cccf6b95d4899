"""The connection of a rank to the board that another rank keeps (`kept_board`). Used by fact_exchange and
meeting_at_address."""

from __future__ import annotations

from typing import Final

from horovod._net.failures import AuthenticationError, ConnectError, ProtocolError
from horovod._net.handshake import calling
from horovod._net.handshake.boards.board_link import BoardLink
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.links import LinkClosedError
from horovod._net.handshake.frames.messages import ROLE_BOARD

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
    try:
        link = calling.call(credentials, ROLE_BOARD, address, port, deadline, patient)
    except LinkClosedError as error:
        raise ConnectError(
            f"Rank 0 cannot be reached at {address} port {port}, where it keeps the board of this job: {error}. "
            f"{remedy}",
            [0],
        ) from error
    except AuthenticationError as error:
        raise ConnectError(
            f"The program that listens at {address} port {port}, where rank 0 keeps the board of this job, does not "
            "hold this job's secret: it is another program, or the hosts have different secrets.",
            [0],
        ) from error
    except ProtocolError as error:
        raise ConnectError(f"{_KEEPER} cannot be trusted: {error}", [0]) from error
    return BoardLink(link, _KEEPER, deadline)
