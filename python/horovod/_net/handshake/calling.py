"""A connection to somebody who listens, opened and proven: both sides hold the job's secret.

Used by board_call, and by the agent of a host that calls its launcher (`horovod.runner.remote.ways.calling_agent`).
"""

from __future__ import annotations

import select
import time
from typing import Final, Union

from horovod._net.handshake import proofs
from horovod._net.handshake.dialler import dial
from horovod._net.handshake.frames import auth
from horovod._net.handshake.frames.codes import FrameCodes
from horovod._net.handshake.frames.links import Link, LinkClosedError, broken
from horovod._net.handshake.strangers import Comebacks
from horovod._net.handshake.visits import Visit

_LOOK_S: Final = 1.0


def call(
    credentials: auth.Credentials, role: int, address: str, port: int, deadline: float, patient: bool = False
) -> Link:
    """Connects with the last rank of these credentials; it may have to come again, if strangers crowd there.

    Args:
        credentials: of this side.
        role: of the connection.
        address, port: where the other side listens.
        deadline: monotonic seconds.
        patient: it may still have to come: calls until the deadline. Otherwise it fails at once where nobody listens.

    Returns:
        The connection, whose frames carry codes from here on.

    Raises:
        LinkClosedError: the other side cannot be reached, or does not answer.
        AuthenticationError: it does not hold the secret.
        ProtocolError: it speaks nonsense.
    """
    comebacks = Comebacks()
    while True:
        found = _try(credentials, role, address, port, deadline)
        if isinstance(found, Link):
            return found
        now = time.monotonic()
        given_up = now >= deadline or (found.refused and not patient)
        if given_up or not comebacks.wait(0, role, now, patient):
            raise found
        time.sleep(max(0.0, min(comebacks.next_s(), deadline) - now))
        comebacks.due(time.monotonic())


def _try(
    credentials: auth.Credentials, role: int, address: str, port: int, deadline: float
) -> Union[Link, LinkClosedError]:
    """The connection, or why there is none."""
    try:
        link = Link(dial(address, port))
    except OSError as error:
        return broken(error)
    try:
        _prove(link, auth.Connector(credentials, credentials.size - 1, role), role, deadline)
        return link
    except LinkClosedError as error:
        link.close()
        return error
    except BaseException:
        link.close()
        raise


def _prove(link: Link, proof: auth.Connector, role: int, deadline: float) -> None:
    visit = Visit(link, proof, 0, role, float("inf"))
    link.exact = True  # what follows the proof carries codes
    link.send(proof.hello)
    poller = select.poll()
    while time.monotonic() < deadline:
        poller.register(link, select.POLLIN | (select.POLLOUT if link.wants_to_write else 0))
        poller.poll(min(max(0.0, deadline - time.monotonic()), _LOOK_S) * 1000)
        link.flush()
        for message in link.receive():
            key = proofs.take(visit, message, lambda _: False)
            if key is not None:
                link.exact = False
                link.protect(FrameCodes(key, connector=True))
                return
    raise LinkClosedError("it does not answer")
