"""Mutual proof that both ends of a connection hold the job's secret, as a pure state machine.

::

    connector                                         acceptor
       Hello(job, epoch, role, size, from, to, nonce_c)  ->
                       <-  Challenge(nonce_a, HMAC(secret, "acceptor" | transcript))
       Proof(HMAC(secret, "connector" | transcript))     ->

The transcript is the whole Hello and nonce_a, so that a proof is good for one connection of one job, epoch, role
and pair of ranks only: it can be neither replayed nor reflected. Nobody's payload is parsed before the other
side's proof has been checked. Used for Unix and TCP connections alike; it does no I/O and reads no
clock. Standard library only (hmac, hashlib, os.urandom): HMAC-SHA256 with a 256-bit secret.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import Optional

from horovod._net.failures import AuthenticationError
from horovod._net.handshake.frames.messages import JOB_BYTES, NONCE_BYTES, Challenge, Hello, Proof, body_of
from horovod._net.secret import SECRET_BYTES

KEY_BYTES = 16
_DOMAIN = b"horovod/1 "
_ROLE_NAMES = {1: "meeting", 2: "control", 3: "data", 4: "board", 5: "agent"}


def job_digest(job_key: str) -> bytes:
    """The job key in the fixed length that frames carry. Not secret."""
    return hashlib.sha256(_DOMAIN + b"job " + job_key.encode()).digest()[:JOB_BYTES]


@dataclass(frozen=True)
class Credentials:
    """What one rank needs to authenticate in one job and epoch; `uid` is the only user whose processes may be
    peers.
    """

    secret: bytes = field(repr=False)
    job: bytes
    epoch: int
    rank: int
    size: int
    uid: int = field(default_factory=os.geteuid)

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise AuthenticationError(f"The job's secret must have {SECRET_BYTES} bytes; it has {len(self.secret)}.")

    def object_key(self) -> bytes:
        """The key of this job and epoch for the codes of pickled bytes (`horovod._core.life.seal`)."""
        return _mac(self.secret, b"objects", self.job + self.epoch.to_bytes(8, "big"))

    def ranks_secret(self) -> bytes:
        """The secret of the ranks, where these are credentials of their launcher and its agents."""
        return _mac(self.secret, b"ranks", self.job)


def _transcript(hello: Hello, acceptor_nonce: bytes) -> bytes:
    return body_of(hello) + acceptor_nonce  # both of fixed length


def _mac(secret: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, _DOMAIN + label + b"\0" + transcript, "sha256")


def _session_key(secret: bytes, transcript: bytes) -> bytes:
    return _mac(secret, b"key", transcript)[:KEY_BYTES]


class Connector:
    """The connecting side. `hello` is sent first; `answer` turns the challenge into the proof; then `key` is set."""

    def __init__(self, own: Credentials, to_rank: int, role: int) -> None:
        self.key: Optional[bytes] = None
        self._own = own
        self._to_rank = to_rank
        self.hello = Hello(own.job, own.epoch, role, own.size, own.rank, to_rank, os.urandom(NONCE_BYTES))

    def answer(self, challenge: Challenge) -> Proof:
        """Checks the acceptor's proof and makes ours.

        Raises:
            AuthenticationError: the acceptor does not hold the secret, or is not the one we wanted.
        """
        transcript = _transcript(self.hello, challenge.nonce)
        if not hmac.compare_digest(challenge.proof, _mac(self._own.secret, b"acceptor", transcript)):
            raise AuthenticationError(
                f"The process that answers as rank {self._to_rank} does not hold this job's secret."
            )
        self.key = _session_key(self._own.secret, transcript)
        return Proof(_mac(self._own.secret, b"connector", transcript))


class Acceptor:
    """The accepting side. `challenge` answers a Hello; `check` judges the proof; then `key` and `peer_rank` are
    set.
    """

    def __init__(self, own: Credentials) -> None:
        self.key: Optional[bytes] = None
        self.hello: Optional[Hello] = None
        self._own = own
        self._nonce = os.urandom(NONCE_BYTES)

    def challenge(self, hello: Hello) -> Challenge:
        """Our proof and nonce.

        Raises:
            AuthenticationError: the Hello is for another job, epoch, size or rank, or a second one.
        """
        own = self._own
        if self.hello is not None:
            raise AuthenticationError(f"Rank {self.hello.from_rank} sent Hello twice.")
        if hello.job != own.job:
            raise AuthenticationError(f"A process of another job claims to be rank {hello.from_rank}.")
        if hello.epoch != own.epoch:
            raise AuthenticationError(
                f"Rank {hello.from_rank} comes with epoch {hello.epoch}; this is epoch {own.epoch}: it is "
                "stale and was refused."
            )
        if hello.size != own.size:
            raise AuthenticationError(
                f"Rank {hello.from_rank} belongs to a job of {hello.size} ranks, this one has {own.size}."
            )
        if hello.to_rank != own.rank or hello.from_rank >= own.size or hello.from_rank == own.rank:
            raise AuthenticationError(
                f"Rank {hello.from_rank} asks for rank {hello.to_rank}, but this is rank {own.rank} of {own.size}."
            )
        self.hello = hello
        return Challenge(self._nonce, _mac(own.secret, b"acceptor", _transcript(hello, self._nonce)))

    def check(self, proof: Proof) -> None:
        """Accepts the connector, or not.

        Raises:
            AuthenticationError: it does not hold the secret, or sent a proof before a Hello.
        """
        if self.hello is None:
            raise AuthenticationError("A proof arrived before Hello.")
        transcript = _transcript(self.hello, self._nonce)
        if not hmac.compare_digest(proof.proof, _mac(self._own.secret, b"connector", transcript)):
            role = _ROLE_NAMES[self.hello.role]
            raise AuthenticationError(
                f"A process that claims to be rank {self.hello.from_rank} ({role}) does not hold this job's secret."
            )
        self.key = _session_key(self._own.secret, transcript)
