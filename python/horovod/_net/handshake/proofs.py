"""The proofs of a visit, ours or another's, step by step as they come; `auth` has what they prove.

Used by the reception, while the job connects, and by on_demand, while it runs.
"""

from __future__ import annotations

from typing import Callable, Optional

from horovod._net.failures import AuthenticationError, ProtocolError
from horovod._net.handshake.frames import auth, messages
from horovod._net.handshake.frames.links import LinkClosedError
from horovod._net.handshake.frames.messages import AnyMessage
from horovod._net.handshake.visits import Visit


def take(visit: Visit, message: AnyMessage, fits: Callable[[messages.Hello], bool]) -> Optional[bytes]:
    """Takes the next message of a visit, and answers it.

    Args:
        visit: of which it comes.
        message: that has come.
        fits: whether such a connection can be, of that rank and role, in the way in which it came.

    Returns:
        The connection's key once both sides have proven that they hold the secret; None before.

    Raises:
        ProtocolError, AuthenticationError: it is not what should come.
        LinkClosedError: it cannot be answered.
    """
    proof = visit.proof
    if isinstance(proof, auth.Connector) and isinstance(message, messages.Challenge):
        visit.link.send(proof.answer(message))
        if visit.link.wants_to_write:
            raise LinkClosedError("it does not read")  # a few dozen bytes always fit
        return proof.key
    if isinstance(proof, auth.Acceptor) and isinstance(message, messages.Hello):
        challenge = proof.challenge(message)
        if not fits(message):
            raise AuthenticationError(f"Rank {message.from_rank} came with a role that does not fit its connection.")
        visit.rank, visit.role = message.from_rank, message.role
        visit.link.send(challenge)
        return None
    if isinstance(proof, auth.Acceptor) and isinstance(message, messages.Proof):
        proof.check(message)
        return proof.key
    raise ProtocolError(f"A {type(message).__name__} came at the wrong time.")
