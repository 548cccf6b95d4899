"""The ranks of a job on several hosts meet at an address, where rank 0 keeps their board, by a secret that the user has
given to all of them. See docs/design/0016. Used by fact_exchange.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Sequence
from typing import Final, NamedTuple, Optional

from horovod._net import interfaces
from horovod._net.clusters.addresses import ADDRESS_VARIABLE
from horovod._net.clusters.placement import MeetingPoint, Placement
from horovod._net.failures import ConnectError, NetError, PlacementError, StartTimeoutError
from horovod._net.handshake.boards import forked
from horovod._net.handshake.boards.board_call import call
from horovod._net.handshake.boards.board_link import BoardLink
from horovod._net.handshake.boards.kept_board import DOUBT_PREFIX, KeptBoard, credentials_of
from horovod._net.handshake.roll_call import listen
from horovod._net.meeting import long_list
from horovod._net.meeting.deaths import ENDED_PREFIX

_TOKEN_BYTES: Final = 16
# What stands on the board. The facts of all come back from rank 0 as one list: R entries for one reader and a few for
# all, instead of R for each of R.
_TOKEN: Final = "facts.token"
_HERE: Final = "facts.here."
_LIST: Final = "facts.list"
_FACTS: Final = "only.{}.facts."  # the first number is of the rank that keeps the board
_LOOK_S: Final = 1.0


class Gathered(NamedTuple):
    """What the ranks have sent to one another.

    Attributes:
        by_rank: what each has sent.
        token: of this job and no other one; rank 0 has drawn it.
        board: of the job. Its owner closes it.
    """

    by_rank: list[bytes]
    token: str
    board: BoardLink


def gather(point: MeetingPoint, placement: Placement, secret: bytes, own: bytes, deadline: float) -> Gathered:
    """Gives all ranks what each has sent. Collective over those of `placement`.

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
    keeper = _keeper(placement)
    facts = _FACTS.format(keeper)
    address = _address_of(point, placement)
    job = "/".join([point.job, str(placement.size), ",".join(map(str, placement.launcher_ranks))])
    kept: Optional[KeptBoard] = None
    board: Optional[BoardLink] = None
    try:
        if placement.rank == keeper:
            kept = _keep(point, address, job, placement, secret)
        credentials = credentials_of(secret, job, placement.rank, placement.size)
        board = call(credentials, address, point.port, deadline, patient=True, remedy=_remedy(point))
        forked.closed.add(board)
        board.post(f"{facts}{placement.rank}", own.decode())
        board.post(f"{_HERE}{placement.rank}", "")
        if placement.rank == keeper:
            every = [f"{facts}{rank}" for rank in range(placement.size)]
            _await(every, board, placement, deadline)
            long_list.post(board, _LIST, [board.get(key) or "" for key in every])
            board.post(_TOKEN, os.urandom(_TOKEN_BYTES).hex())
        _await([_TOKEN], board, placement, deadline)  # the last that is posted
        return _gathered(board, placement.size)
    except BaseException:
        if board is not None:
            board.close()
        if kept is not None:
            kept.stop()  # the next attempt needs the port
        raise


def _keeper(placement: Placement) -> int:
    """The rank that keeps the board."""
    if placement.launcher_ranks and 0 not in placement.launcher_ranks:
        raise PlacementError(
            f"The ranks {list(placement.launcher_ranks)} cannot meet by themselves: rank 0 of {placement.launcher} "
            "keeps the board at the address where all meet, and is not among them. Give init() a list with rank 0, or "
            "use process sets."
        )
    return placement.launcher_ranks.index(0) if placement.launcher_ranks else 0


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
            f"The ranks are to meet on {point.host} ({point.source}), whose name has no address on "
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
            f"Rank 0 on {placement.hostname} cannot keep the board of this job, by {point.source}: {error} The "
            f"address must be one of this host, and the port free.{_another(point)}"
        ) from error
    names: Sequence[int] = [placement.launcher_rank(rank) for rank in range(placement.size)]
    kept = KeptBoard(credentials_of(secret, job, placement.size, placement.size), listener, names)
    kept.start()
    return kept


def _remedy(point: MeetingPoint) -> str:
    return (
        f"That address is by {point.source}. Has rank 0 called hvd.init(), and does a firewall let the port "
        f"through?{_another(point)}"
    )


def _another(point: MeetingPoint) -> str:
    return f" {ADDRESS_VARIABLE}=HOST:PORT, equal for all ranks, names another one." if point.settable else ""


def _gathered(board: BoardLink, size: int) -> Gathered:
    by_rank = long_list.take(board, _LIST)
    if len(by_rank) != size:
        raise ConnectError(f"Rank 0 lists {len(by_rank)} ranks instead of {size}.", [0])
    return Gathered([each.encode() for each in by_rank], board.get(_TOKEN) or "", board)


def _await(keys: Sequence[str], board: BoardLink, placement: Placement, deadline: float) -> None:
    """Waits until entries of these keys stand.

    Raises:
        StartTimeoutError, ConnectError: as `gather`.
    """
    begun = time.monotonic()
    while True:
        standing = frozenset(board.keys())
        if standing.issuperset(keys):
            return
        for rank in range(placement.size):
            if f"{ENDED_PREFIX}{placement.launcher_rank(rank)}" in standing:
                raise ConnectError(f"Rank {rank} ended, or gave up, before all ranks had met.", [rank])
        left = deadline - time.monotonic()
        if left <= 0:
            raise _late(board, placement, time.monotonic() - begun)
        board.wait(min(_LOOK_S, left))


def _late(board: BoardLink, placement: Placement, waited_s: float) -> StartTimeoutError:
    missing = [rank for rank in range(placement.size) if board.get(f"{_HERE}{rank}") is None]
    if not missing:
        return StartTimeoutError(f"Rank 0 did not send the addresses of the ranks within {waited_s:.3g} s.", [0])
    doubted = {rank: board.get(f"{DOUBT_PREFIX}{rank}") for rank in missing}
    doubts = "".join(
        f" A process at {where} said that it was rank {rank} and left after the proof of the secret: it has a "
        "different secret."
        for rank, where in doubted.items()
        if where is not None
    )
    return StartTimeoutError(
        f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of {placement.size} did not "
        f"come to the meeting within {waited_s:.3g} s.{doubts} Launcher: {placement.launcher}. "
        "Check that every rank calls hvd.init(), that none has failed and that all have the same secret; "
        "HOROVOD_START_TIMEOUT (seconds) allows more time.",
        missing,
    )
