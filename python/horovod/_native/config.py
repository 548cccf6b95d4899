"""hvd_config filled in: what the engine is given when it starts. Used by `horovod._core.life.engine_start`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

from horovod._native import abi


class PeerRecord(Protocol):
    """The fields of hvd_peer, as `horovod._net.Peer` has them."""

    rank: int
    memory_fd: int
    doorbell_fd: int
    liveness_fd: int
    control_fd: int
    data_fd: int
    pid: int
    key: bytes


def peer_array(peers: Sequence[PeerRecord]) -> ctypes.Array[abi.HvdPeer]:
    """The peers as an array for `HvdConfig.peers`."""
    array = (abi.HvdPeer * max(len(peers), 1))()
    for target, peer in zip(array, peers):
        for name in ("rank", "memory_fd", "doorbell_fd", "liveness_fd", "control_fd", "data_fd", "pid"):
            setattr(target, name, getattr(peer, name))
        target.key[:] = list(peer.key)
    return array


def make_config(peers: Sequence[PeerRecord], host_of_rank: Sequence[int], **fields: Any) -> abi.HvdConfig:
    """An hvd_config that keeps everything it points to alive.

    Args:
        peers: the other ranks.
        host_of_rank: `size` numbers.
        **fields: every other field by its name in hvd_config; a str or None for a string.

    Raises:
        TypeError: a field is missing, or is none of hvd_config's.
    """
    given = {"struct_bytes", "peers", "n_peers", "host_of_rank"}
    names = {name for name, *_ in abi.HvdConfig._fields_}
    missing, unknown = sorted(names - given - set(fields)), sorted(set(fields) - (names - given))
    if missing or unknown:
        raise TypeError(f"hvd_config: missing fields {missing}, unknown fields {unknown}.")
    config = abi.HvdConfig()
    config.struct_bytes = ctypes.sizeof(abi.HvdConfig)
    # A field of pointer type keeps the array assigned to it alive.
    config.peers = peer_array(peers)
    config.n_peers = len(peers)
    config.host_of_rank = (ctypes.c_int32 * max(len(host_of_rank), 1))(*host_of_rank)
    for name, value in fields.items():
        setattr(config, name, value.encode() if isinstance(value, str) else value)
    return config


def tree(library: ctypes.CDLL, host_of_rank: Sequence[int]) -> list[int]:
    """hvd_tree: the parent of each rank in the negotiation, -1 for rank 0.

    Raises:
        MemoryError: there is none for it.
    """
    size = len(host_of_rank)
    parents = (ctypes.c_int32 * size)()
    if library.hvd_tree((ctypes.c_int32 * size)(*host_of_rank), size, parents) != abi.OK:
        raise MemoryError("There is not enough memory for the negotiation tree.")
    return list(parents)
