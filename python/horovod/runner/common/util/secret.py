"""Kept for import paths that other people use: a key, and codes (HMAC-SHA256) made with it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from horovod._net.clusters.launchers import SECRET_VARIABLE
from horovod._net.secret import new_secret

HOROVOD_SECRET_KEY: Final = SECRET_VARIABLE
DIGEST_LENGTH_BYTES: Final = 32


def make_secret_key() -> bytes:
    """A fresh random key of 256 bits."""
    return new_secret()


def compute_digest(key: bytes, content: bytes) -> bytes:
    """The code of `content`."""
    return hmac.new(key, content, hashlib.sha256).digest()


def check_digest(key: bytes, content: bytes, digest: bytes) -> bool:
    """`digest` is the code of `content`. Takes equally long whether it is or not."""
    return hmac.compare_digest(compute_digest(key, content), digest)
