"""Starts the ranks of a job on several "hosts" that are directories of this one, connected by the loopback.

`hosts_on_loopback.py 2,1 COMMAND...`: so many ranks on each host. What an agent of horovodrun does for its ranks, this
does, and no more: it is for what ranks do once they run. The exit code is that of the first rank that failed.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import subprocess
import sys
import tempfile

from jobs.board_keeper import BoardKeeper


def main() -> int:
    """See the head of the file."""
    counts = [int(count) for count in sys.argv[1].split(",")]
    with tempfile.TemporaryDirectory() as base:
        directories = [pathlib.Path(base, f"host{index}") for index in range(len(counts))]
        for directory in directories:
            directory.mkdir(mode=0o700)
        board = BoardKeeper(directories)
        common = {**os.environ, "_HOROVOD_SECRET_KEY": secrets.token_hex(32), "HOROVOD_JOB_ID": secrets.token_hex(8)}
        ranks = [
            subprocess.Popen(sys.argv[2:], env={**common, **_place(counts, host, local_rank, directories[host])})
            for host, count in enumerate(counts)
            for local_rank in range(count)
        ]
        codes = [rank.wait() for rank in ranks]
        board.close()
    return next((1 if code < 0 else code for code in codes if code), 0)


def _place(counts: list[int], host: int, local_rank: int, directory: pathlib.Path) -> dict[str, str]:
    numbers = {
        "RANK": sum(counts[:host]) + local_rank,
        "SIZE": sum(counts),
        "LOCAL_RANK": local_rank,
        "LOCAL_SIZE": counts[host],
        "CROSS_RANK": sum(count > local_rank for count in counts[:host]),
        "CROSS_SIZE": sum(count > local_rank for count in counts),
    }
    return {
        **{f"HOROVOD_{name}": str(number) for name, number in numbers.items()},
        "HOROVOD_HOSTNAME": directory.name,
        "HOROVOD_RENDEZVOUS_DIR": str(directory),
        "_HOROVOD_ADDRESS": "127.0.0.1",
        "HVD_TEST_HOSTS": sys.argv[1],
    }


if __name__ == "__main__":
    sys.exit(main())
