"""A list of texts on a job's board that is longer than an entry may be: compressed, and in as many entries as it takes.

What the ranks of a large job tell of themselves is much alike: a thousand ranks fill a few entries.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Final

from horovod._net.failures import ConnectError
from horovod._net.meeting.board import Board

_PIECE: Final = 3800  # characters; an entry has at most 4,096 bytes, its key among them
_MOST_BYTES: Final = 256 << 20  # a million ranks


def post(board: Board, key: str, texts: Sequence[str]) -> None:
    """Puts the list there; what is posted behind it stands behind it.

    Args:
        board: of the job.
        key: of the list, nobody else's.
        texts: the list.
    """
    data = base64.b85encode(zlib.compress(json.dumps(list(texts)).encode(), 6)).decode()
    pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
    for number, piece in enumerate(pieces):
        board.post(f"{key}.{number}", piece)
    board.post(key, str(len(pieces)))


def take(board: Board, key: str) -> list[str]:
    """The list, all of which stands.

    Raises:
        ConnectError: none does.
    """
    try:
        pieces = [board.get(f"{key}.{number}") or "" for number in range(int(board.get(key) or ""))]
        unpacker = zlib.decompressobj()
        found = json.loads(unpacker.decompress(base64.b85decode("".join(pieces)), _MOST_BYTES))
        if isinstance(found, list) and all(isinstance(each, str) for each in found):
            return found
    except (ValueError, RecursionError, zlib.error):
        pass
    raise ConnectError(f"The list {key} on the job's board cannot be read: all ranks must run the same Horovod.", [0])
