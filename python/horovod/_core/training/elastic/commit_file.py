"""The bytes of a durable commit: made by `written`, taken apart by `read`.

Magic, the identity of the key, the lengths of the parts, the parts, and a BLAKE2b digest of all that stands before it;
with a key it is a MAC. The first part names the writer in JSON, the second is a pickle without the arrays, which
are the others. Nothing is read, least of all unpickled, before the digest is right. Without a key, the caller must know
that nobody else can have written the file.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import pickle
import struct
from collections.abc import Iterator
from typing import Any, Callable, Final, NamedTuple, Optional, Union

__all__ = ["Commit", "NotReadableError", "NotWholeError", "OtherKeyError", "read", "register", "written"]

_MAGIC: Final = b"horovod commit 2\n"
_KEY_ID_BYTES: Final = 8
_DIGEST_BYTES: Final = 32
_COUNT: Final = struct.Struct("<Q")
_PERSON: Final = b"hvd commit"

_reducers: Final[dict[type, Callable[[Any], Any]]] = {}


class NotWholeError(Exception):
    """The file is incomplete, or was changed."""


class OtherKeyError(Exception):
    """The file was written with another key, or with none."""


class NotReadableError(Exception):
    """The file is whole, but this program cannot unpickle it. The cause is the exception of unpickling."""


class Commit(NamedTuple):
    """What a file holds.

    Attributes:
        content: of the commit.
        writer: of the file; see `written`.
    """

    content: Any
    writer: Any


def register(kind: type, reducer: Callable[[Any], Any]) -> None:
    """Says how values of exactly this type are pickled: as `__reduce__` does, with `pickle.PickleBuffer`s for bytes
    that are stored separately; NotImplemented: as pickle does it."""
    _reducers[kind] = reducer


def written(content: Any, writer: Any, key: Optional[bytes]) -> Iterator[Union[bytes, memoryview]]:
    """The pieces of a file, in order.

    Args:
        content: picklable, also with what the script defines itself.
        writer: names the process that writes, in values that JSON knows.
        key: of the MAC; None: a checksum.
    """
    import json  # few ranks write commits

    arrays: list[pickle.PickleBuffer] = []
    pickled = memoryview(_pickled(content, arrays))
    parts = [memoryview(json.dumps(writer).encode()), pickled, *(array.raw() for array in arrays)]
    lengths = b"".join(_COUNT.pack(part.nbytes) for part in parts)
    digest = _digest(key)
    pieces: list[Union[bytes, memoryview]] = [_MAGIC, _key_id(key), _COUNT.pack(len(parts)), lengths, *parts]
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield digest.digest()


def read(data: bytearray, key: Optional[bytes]) -> Commit:
    """What was written.

    Raises:
        NotReadableError: a module or class that it needs is missing, or has changed.
        NotWholeError: something is missing or was changed.
        OtherKeyError: it was written with another key, or with none.
    """
    view = memoryview(data)
    if len(data) < len(_MAGIC) + _KEY_ID_BYTES + _COUNT.size + _DIGEST_BYTES or not data.startswith(_MAGIC):
        raise NotWholeError("it does not begin as a commit, or is too short for one")
    start = len(_MAGIC)
    if not hmac.compare_digest(bytes(view[start : start + _KEY_ID_BYTES]), _key_id(key)):
        raise OtherKeyError
    digest = _digest(key)
    digest.update(view[:-_DIGEST_BYTES])
    if not hmac.compare_digest(digest.digest(), bytes(view[-_DIGEST_BYTES:])):
        raise NotWholeError("its checksum is wrong: it was written in part, or changed")
    start += _KEY_ID_BYTES
    (count,) = _COUNT.unpack_from(view, start)
    start += _COUNT.size
    lengths = [length for (length,) in _COUNT.iter_unpack(view[start : start + count * _COUNT.size])]
    start += count * _COUNT.size
    parts = []
    for length in lengths:
        parts.append(view[start : start + length])
        start += length
    import json

    try:
        return Commit(pickle.loads(parts[1], buffers=parts[2:]), json.loads(bytes(parts[0])))
    except Exception as error:  # whatever the classes of the program raise
        raise NotReadableError(f"{type(error).__name__}: {error}") from error


def _pickled(content: Any, arrays: list[pickle.PickleBuffer]) -> bytes:
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]
        def reducer_override(self, obj: Any) -> Any:
            reducer = _reducers.get(type(obj))
            reduced = NotImplemented if reducer is None else reducer(obj)
            return super().reducer_override(obj) if reduced is NotImplemented else reduced

    stream = io.BytesIO()
    # An array whose elements do not follow one another cannot stand by itself.
    Pickler(stream, protocol=5, buffer_callback=lambda array: not _stands_alone(array, arrays)).dump(content)
    return stream.getvalue()


def _stands_alone(array: pickle.PickleBuffer, arrays: list[pickle.PickleBuffer]) -> bool:
    try:
        array.raw()
    except BufferError:
        return False
    arrays.append(array)
    return True


def _digest(key: Optional[bytes]) -> Any:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key or b"", person=_PERSON)


def _key_id(key: Optional[bytes]) -> bytes:
    """Distinguishes keys, and reveals nothing about them."""
    if key is None:
        return bytes(_KEY_ID_BYTES)
    return hashlib.blake2b(b"which key", digest_size=_KEY_ID_BYTES, key=key, person=_PERSON).digest()
