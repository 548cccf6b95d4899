"""Checks the settings of durable commits: the folder or URL, and the key.

Ranks check them as they begin, and a launcher as far as it can know. What cannot work is refused, with a remedy.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Final, Optional

from horovod._core.commits.bounded import answering, bounded
from horovod._core.commits.owner import refuse_living
from horovod._core.commits.places import Place, StrangersError, fsspec_for, is_url
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import Settings

__all__ = ["key_of", "refuse_impossible", "require_usable"]

_KEY_BYTES: Final = 16  # fewer could be guessed


def key_of(chosen: Settings) -> Optional[bytes]:
    """The key of a job's durable commits; None: there is none, and none is needed.

    Raises:
        InvalidArgumentError: the file cannot be used, or a URL needs one.
    """
    _require_key(chosen)
    path = chosen.elastic_commit_key_file
    return None if path is None else _key_in(path)


def require_usable(where: Place, key: Optional[bytes]) -> None:
    """Refuses a place where this user cannot write or, without a key, others can.

    Raises:
        InvalidArgumentError: says which it is.
    """
    if key is None:
        try:
            where.require_own()
        except StrangersError as error:
            raise InvalidArgumentError(
                f"HOROVOD_ELASTIC_COMMIT_DIR: {error}, and reading a commit unpickles it. Remove that permission "
                "(chmod 700), or set HOROVOD_ELASTIC_COMMIT_KEY_FILE to a file with a secret."
            ) from None
    where.require_writable()


def refuse_impossible(chosen: Settings, here: bool, this_python: bool) -> None:
    """Refuses what the ranks would refuse, as far as this process can know. Makes the folder if it is not there.

    Args:
        chosen: the settings of the job.
        here: its ranks run on this machine, as this user.
        this_python: they have the packages of this process.

    Raises:
        InvalidArgumentError: the folder, the URL or the file with the key cannot be used, the folder does not answer,
            or another job that runs here uses it.
        UnsupportedError: a URL, and fsspec is not installed.
    """
    where = chosen.elastic_commit_dir
    if where is None:
        return
    _require_key(chosen)
    key = key_of(chosen) if here else None
    if is_url(where):
        if this_python:
            fsspec_for(where)  # the network is the ranks' business: it may be slow, or not reach this host
    elif here:
        folder = bounded(where)
        with answering(where):
            require_usable(folder, key)
            refuse_living(folder)


def _require_key(chosen: Settings) -> None:
    where = chosen.elastic_commit_dir
    if where is not None and is_url(where) and chosen.elastic_commit_key_file is None:
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_DIR is the URL {where}, where others may be able to write, and what is read from "
            "there is unpickled. Give the name of a file with a secret as HOROVOD_ELASTIC_COMMIT_KEY_FILE."
        )


def _key_in(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found, text = os.fstat(fd), file.read(1 << 16).strip()
    except OSError as error:
        raise InvalidArgumentError(f"HOROVOD_ELASTIC_COMMIT_KEY_FILE: {path}: {error.strerror}.") from None
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_KEY_FILE: {path} can be read by others than its owner. Use chmod 600. "
            f"Received: {stat.filemode(found.st_mode)}."
        )
    if len(text) < _KEY_BYTES:
        raise InvalidArgumentError(
            f"HOROVOD_ELASTIC_COMMIT_KEY_FILE: {path} must hold a secret of {_KEY_BYTES} bytes at least. "
            f"Received: {len(text)} bytes."
        )
    return hashlib.blake2b(text, digest_size=32, person=b"hvd commit key").digest()
