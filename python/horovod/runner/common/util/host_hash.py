"""Kept for import paths that other people use: a name that tells hosts, and containers of one host, apart."""

from __future__ import annotations

import hashlib
from typing import Optional

from horovod._net.identity import host_identity, hostname


def host_hash(salt: Optional[str] = None) -> str:
    """Equal on processes that may share memory; `salt` keeps groups of them apart."""
    identity = host_identity()
    text = f"{hostname()}/{identity.boot_id}/{identity.ipc_namespace}/{salt or ''}"
    return f"{hostname()}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
