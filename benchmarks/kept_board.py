"""What the board that rank 0 keeps costs it (docs/design/0014, 0016): ranks by TCP over the loopback, in one process.

    kept_board.py [--ranks 64,256,1024] [--facts 300]

Each rank comes, proves the secret, tells its facts, hears those of all, shows a card as it does to meet, and hears the
cards of all. Prints a Markdown table: the seconds that the ranks' side took (of all ranks, in one thread, with the
keeper's in another), the processor time of the keeper's thread, and what it has sent. A real job divides the ranks'
side among its hosts; the keeper's is one thread in any case.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "python"))

from horovod._net.handshake import messages  # noqa: E402
from horovod._net.handshake.board_call import call  # noqa: E402
from horovod._net.handshake.board_link import BoardLink  # noqa: E402
from horovod._net.handshake.kept_board import KeptBoard, credentials_of  # noqa: E402
from horovod._net.handshake.links import Link  # noqa: E402
from horovod._net.handshake.roll_call import listen  # noqa: E402
from horovod._net.meeting import long_list  # noqa: E402

_PATIENCE_S = 300.0


class Counting(KeptBoard):
    """Counts what it sends."""

    frames = sent_bytes = 0

    def _send(self, link: Link, *every: messages.AnyMessage) -> None:
        self.frames += len(every)
        self.sent_bytes += sum(len(messages.frame(message)) for message in every)
        super()._send(link, *every)


def main(words: Sequence[str]) -> int:
    """Measures jobs of so many ranks, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="64,256,1024")
    parser.add_argument("--facts", type=int, default=300, help="bytes that a rank tells of itself; 300")
    asked = parser.parse_args(words)
    print("| ranks | all here, s | facts told, s | cards told, s | keeper's processor, s | frames | MB sent |")
    print("|---|---|---|---|---|---|---|")
    for size in map(int, asked.ranks.split(",")):
        print(f"| {' | '.join(_job(size, asked.facts))} |", flush=True)
    return 0


def _job(size: int, fact_bytes: int) -> Iterator[str]:
    secret, listener = os.urandom(32), listen("127.0.0.1")
    port = int(listener.getsockname()[1])
    keeper = Counting(credentials_of(secret, "job", size, size), listener, range(size))
    keeper.start()
    deadline = time.monotonic() + _PATIENCE_S
    began_s = time.monotonic()
    boards = [call(credentials_of(secret, "job", rank, size), "127.0.0.1", port, deadline) for rank in range(size)]
    yield str(size)
    yield f"{time.monotonic() - began_s:.2f}"
    began_s = time.monotonic()
    for rank, board in enumerate(boards):
        fact = f"host{rank // 8}.{os.urandom(8).hex()}".ljust(fact_bytes, "x")
        board.post(f"only.0.introduction.facts.{rank}", fact)
        board.post(f"introduction.here.{rank}", "")
    every = [f"only.0.introduction.facts.{rank}" for rank in range(size)]
    _until(boards[:1], every)
    long_list.post(boards[0], "introduction.list", [boards[0].get(key) or "" for key in every])
    _until(boards, ["introduction.list", f"introduction.here.{size - 1}"])
    assert all(len(long_list.take(board, "introduction.list")) == size for board in (boards[0], boards[-1]))
    yield f"{time.monotonic() - began_s:.2f}"
    began_s = time.monotonic()
    cards = [f"m.0123456789abcdef.0.0.card.{rank}" for rank in range(size)]
    for rank, board in enumerate(boards):
        board.post(cards[rank], f"{40000 + rank % 1000} 10.77.{rank // 250}.{rank % 250} host{rank // 8}")
    _until(boards, cards)
    yield f"{time.monotonic() - began_s:.2f}"
    (thread,) = (each for each in threading.enumerate() if each.name == "horovod-board" and each.ident)
    used_s = time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
    yield f"{used_s:.2f}"
    yield str(keeper.frames)
    yield f"{keeper.sent_bytes / 1e6:.1f}"
    for board in boards:
        board.close()
    keeper.stop()


def _until(boards: Sequence[BoardLink], keys: Sequence[str]) -> None:
    """Until all of them have heard these keys; a rank sleeps until something comes, as ranks do."""
    waiting = {board._link.fileno(): board for board in boards}
    poller = select.poll()
    for fd in waiting:
        poller.register(fd, select.POLLIN)
    ready = list(waiting)
    deadline = time.monotonic() + _PATIENCE_S
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} ranks have not heard all within {_PATIENCE_S:g} s")
        for fd in ready:
            if frozenset(waiting[fd].keys()).issuperset(keys):
                poller.unregister(fd)
                del waiting[fd]
        ready = [fd for fd, _ in poller.poll(1000)] if waiting else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
