"""The secret that the ranks of a job share: how long it is, and a fresh one.

Given by the launcher (`clusters`) or made in the meeting directory (`meeting`), and proven in the handshake
(`handshake.frames.auth`).
"""

from __future__ import annotations

import os

SECRET_BYTES = 32


def new_secret() -> bytes:
    """A fresh secret for one job."""
    return os.urandom(SECRET_BYTES)
