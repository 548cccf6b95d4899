"""Hosts for the tests of horovod._net: each a directory of a launcher with the socket of its board, on the loopback.

The ranks of a host meet in its directory and share memory; those of different hosts know of one another by the board
alone, as they would with a network between them.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from jobs.board_keeper import BoardKeeper
from net_ranks import unique_key

from horovod._net.clusters.placement import Placement

SECRET = bytes(range(32))


class Hosts:
    """A job on several hosts.

    Args:
        base: where the directories of the hosts are made.
        counts: ranks of each host.
        fields: of all placements.
    """

    def __init__(self, base: pathlib.Path, counts: Sequence[int], **fields: Any) -> None:
        self.directories = [base / f"host{index}" for index in range(len(counts))]
        for directory in self.directories:
            directory.mkdir(mode=0o700)
        self.board = BoardKeeper(self.directories)
        key = unique_key()
        size = sum(counts)
        self.placements = []
        for index, count in enumerate(counts):
            for local_rank in range(count):
                place: dict[str, Any] = {
                    "hostname": f"host{index}",
                    "meeting_directory": str(self.directories[index]),
                    "secret": SECRET,
                    "address": "127.0.0.1",
                    **fields,
                }
                rank = len(self.placements)
                self.placements.append(
                    Placement(rank, size, local_rank, count, index, len(counts), "horovodrun", key, **place)
                )

    def left_behind(self) -> list[str]:
        """What lies in the directories but the sockets of the board."""
        return [name for directory in self.directories for name in os.listdir(directory) if name != "board"]


MakeHosts = Callable[..., Hosts]
