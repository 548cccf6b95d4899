"""The ranks of a job on several hosts meet at an address, where rank 0 keeps their board, by a secret that the user has
given to all of them. See docs/design/0016. Used by introduction.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Optional

from horovod._net import interfaces
from horovod._net.clusters.addresses import ADDRESS_VARIABLE, MeetingPoint
from horovod._net.clusters.placement import Placement
from horovod._net.failures import ConnectError, NetError, PlacementError, StartTimeoutError
from horovod._net.handshake.board_call import call
from horovod._net.handshake.board_link import BoardLink
from horovod._net.handshake.kept_board import KeptBoard, credentials_of
from horovod._net.handshake.roll_call import listen
from horovod._net.meeting.deaths import ENDED_PREFIX

_TOKEN_BYTES: Final = 16
_TOKEN: Final = "introduction.token"
_FACTS: Final = "introduction.facts."
_LOOK_S: Final = 1.0


class Told(NamedTuple):
    """What the ranks have told one another.

    Attributes:
        by_rank: what each has told.
        token: of this job and no other one; rank 0 has drawn it.
        board: of the job. Its owner closes it.
    """

    by_rank: list[bytes]
    token: str
    board: BoardLink


def gather(point: MeetingPoint, placement: Placement, secret: bytes, own: bytes, deadline: float) -> Told:
    """Tells all ranks what each has told. Collective over those of `placement`.

    Args:
        point: where they meet.
        placement: of this rank, among those that meet.
        secret: that the user has given to all of them.
        own: what this one tells; a text without anything secret.
        deadline: monotonic seconds.

    Raises:
        PlacementError: the rank that is to keep the board is not among them, or not at that address.
        StartTimeoutError: ranks do not come; names them.
        ConnectError: rank 0 cannot be reached, does not hold the secret, or a rank has ended.
    """
    keeps = _keeps_the_board(placement)
    address = _address_of(point, placement)
    job = "/".join([point.job, str(placement.size), ",".join(map(str, placement.launcher_ranks))])
    kept: Optional[KeptBoard] = None
    board: Optional[BoardLink] = None
    try:
        if keeps:
            kept = _keep(point, address, job, placement, secret)
        credentials = credentials_of(secret, job, placement.rank, placement.size)
        board = call(credentials, address, point.port, deadline, patient=True, remedy=_remedy(point))
        os.register_at_fork(after_in_child=board.close)  # its copy would hide that this rank has ended
        board.post(f"{_FACTS}{placement.rank}", own.decode())
        if keeps:
            board.post(_TOKEN, os.urandom(_TOKEN_BYTES).hex())
        return _await_all(board, placement, deadline)
    except BaseException:
        if board is not None:
            board.close()
        if kept is not None:
            kept.stop()  # the next attempt needs the port
        raise


def _keeps_the_board(placement: Placement) -> bool:
    if placement.launcher_ranks and 0 not in placement.launcher_ranks:
        raise PlacementError(
            f"The ranks {list(placement.launcher_ranks)} cannot meet by themselves: rank 0 of {placement.launcher} "
            "keeps the board at the address where all meet, and is not among them. Give init() a list with rank 0, or "
            "use process sets."
        )
    return placement.launcher_rank(placement.rank) == 0


def _address_of(point: MeetingPoint, placement: Placement) -> str:
    """In numbers. A name that means this host itself, as its own name often does, stands for its first network."""
    try:
        ipaddress.ip_address(point.host)
        return point.host
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(point.host, point.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectError(
            f"The ranks are to meet on {point.host} ({point.told_by}), whose name has no address on "
            f"{placement.hostname} ({error.strerror}); check its spelling, /etc/hosts and DNS.",
            [0],
        ) from error
    addresses = sorted((str(each[4][0]) for each in found), key=lambda address: ":" in address)
    if not ipaddress.ip_address(addresses[0].partition("%")[0]).is_loopback:
        return addresses[0]
    networks = interfaces.networks_of_this_host(placement.interfaces)
    return networks[0].partition("/")[0] if networks else addresses[0]


def _keep(point: MeetingPoint, address: str, job: str, placement: Placement, secret: bytes) -> KeptBoard:
    try:
        listener = listen(address, point.port)
    except NetError as error:
        raise PlacementError(
            f"Rank 0 on {placement.hostname} cannot keep the board of this job, by {point.told_by}: {error} The "
            f"address must be one of this host, and the port free: {ADDRESS_VARIABLE}=HOST:PORT, equal for all ranks, "
            "names others."
        ) from error
    names: Sequence[int] = [placement.launcher_rank(rank) for rank in range(placement.size)]
    kept = KeptBoard(credentials_of(secret, job, placement.size, placement.size), listener, names)
    kept.start()
    return kept


def _remedy(point: MeetingPoint) -> str:
    return (
        f"That address is by {point.told_by}. Has rank 0 called hvd.init(), and does a firewall let the port through? "
        f"{ADDRESS_VARIABLE}=HOST:PORT, equal for all ranks, names another one."
    )


def _await_all(board: BoardLink, placement: Placement, deadline: float) -> Told:
    begun = time.monotonic()
    while True:
        told = [board.get(f"{_FACTS}{rank}") for rank in range(placement.size)]
        token = board.get(_TOKEN)
        by_rank = [each.encode() for each in told if each is not None]
        if token and len(by_rank) == placement.size:
            return Told(by_rank, token, board)
        missing = [rank for rank, each in enumerate(told) if each is None]
        _refuse_ended(board, placement)
        left = deadline - time.monotonic()
        if left <= 0:
            raise StartTimeoutError(
                f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of {placement.size} did not "
                f"come to the meeting within {time.monotonic() - begun:.3g} s. Launcher: {placement.launcher}. Check "
                "that every rank calls init(), that none has failed and that all have the same secret; "
                "HOROVOD_START_TIMEOUT (seconds) allows more time.",
                missing,
            )
        board.wait(min(_LOOK_S, left))


def _refuse_ended(board: BoardLink, placement: Placement) -> None:
    for rank in range(placement.size):
        if board.get(f"{ENDED_PREFIX}{placement.launcher_rank(rank)}") is not None:
            raise ConnectError(f"Rank {rank} ended, or gave up, before all ranks had met.", [rank])
