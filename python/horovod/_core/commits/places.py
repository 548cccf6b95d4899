"""Where durable commits lie: a `Folder` of this machine, or a place that fsspec can reach, `Remote`.

Both list, read, write and remove files by name. A file appears under its name when it is whole: it is written aside and
renamed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from typing import Any, Final, Protocol, Union

from horovod._core.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Folder", "Place", "Remote", "StrangersError", "fsspec_for", "is_url", "place"]

Pieces = Iterable[Union[bytes, memoryview]]
PART: Final = ".part"
_NO_RIGHT: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT)
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class StrangersError(Exception):
    """Others than this user may have written here."""


class Place(Protocol):
    """A place for files.

    Attributes:
        where: its path or URL, for messages.
    """

    where: str

    def names(self) -> list[str]:
        """Of all files, those that are being written too; not of folders."""
        ...

    def require_own(self) -> None:
        """Raises StrangersError: others than this user can write here, as far as that can be known."""
        ...

    def require_writable(self) -> None:
        """Raises InvalidArgumentError: this user has no right to write here, as far as that can be known."""
        ...

    def read(self, name: str, strangers: bool) -> bytearray:
        """The content of a file.

        Args:
            strangers: also if others than this user can have written it.

        Raises:
            StrangersError: others can.
            OSError: it cannot be read.
        """
        ...

    def write(self, name: str, pieces: Pieces) -> None:
        """Writes a file; nobody sees a part of it under this name.

        Raises:
            OSError: it cannot be written.
        """
        ...

    def remove(self, name: str) -> None:
        """Removes a file that may be gone already."""
        ...

    def mark(self, name: str, data: bytes, new: bool) -> None:
        """Writes a small file in place, without waiting for the disk. A reader may see a part of the file.

        Args:
            new: the file may have to be made.

        Raises:
            FileNotFoundError: the file is gone, and `new` is False.
            OSError: it cannot be written.
        """
        ...

    def peek(self, name: str, most: int) -> bytes:
        """The first bytes of a file, no matter which process wrote it.

        Raises:
            OSError: it cannot be read.
        """
        ...


def place(where: str) -> Place:
    """The place of a path or a URL.

    Raises:
        UnsupportedError: a URL, and fsspec is not installed.
        InvalidArgumentError: the folder cannot be made, or the URL is of no kind that fsspec knows.
    """
    return Remote(where) if is_url(where) else Folder(where)


def is_url(where: str) -> bool:
    """It is not a path, but a place for fsspec."""
    return "://" in where


def fsspec_for(url: str) -> Any:
    """The module fsspec, with what it needs for this kind of URL. Goes to no network.

    Raises:
        UnsupportedError: fsspec is not installed.
        InvalidArgumentError: it does not know this kind of URL, or lacks a package for it.
    """
    try:
        import fsspec  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise UnsupportedError(
            f"HOROVOD_ELASTIC_COMMIT_DIR is the URL {url}, and fsspec, which reaches it, is not installed. "
            "Install it (pip install fsspec), or name a folder."
        ) from None
    try:
        for kind in url.partition("://")[0].split("::"):  # one may lead to another
            fsspec.get_filesystem_class(kind)
    except (ValueError, ImportError) as error:
        raise _unreachable(url, error) from None
    return fsspec


def _unreachable(url: str, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(f"HOROVOD_ELASTIC_COMMIT_DIR: {url} cannot be reached: {error}.")


class Folder:
    """A folder of this machine, or one that is mounted on it. Made if it is not there, for this user alone.

    Raises:
        InvalidArgumentError: it cannot be made.
    """

    def __init__(self, path: str) -> None:
        self.where = self._path = os.path.abspath(path)
        try:
            os.makedirs(self._path, 0o700, exist_ok=True)
        except OSError as error:
            raise InvalidArgumentError(
                f"HOROVOD_ELASTIC_COMMIT_DIR: {self._path} is not a folder and cannot be made: {error.strerror}."
            ) from None

    def names(self) -> list[str]:
        with os.scandir(self._path) as entries:
            return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]

    def require_own(self) -> None:
        _require_own(self._path, os.stat(self._path))

    def require_writable(self) -> None:
        import tempfile  # every rank imports this file, and few ask

        try:
            tempfile.TemporaryFile(dir=self._path).close()
        except OSError as error:
            if error.errno in _NO_RIGHT:  # a disk may be full, or a server away, for a while
                raise InvalidArgumentError(
                    f"HOROVOD_ELASTIC_COMMIT_DIR: durable commits cannot be written to {self._path}: {error.strerror}. "
                    f"Give this user (uid {os.geteuid()}) the right to write there, or name another folder."
                ) from None

    def read(self, name: str, strangers: bool) -> bytearray:
        # No link: it may lead to what somebody else has written.
        fd = os.open(os.path.join(self._path, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            found = os.fstat(fd)
            if not strangers:
                _require_own(self._path, os.stat(self._path))
                _require_own(os.path.join(self._path, name), found)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(f"{name} is not a file")
            return _all_of(file, found.st_size)

    def write(self, name: str, pieces: Pieces) -> None:
        aside = os.path.join(self._path, f".{name}.{os.getpid()}{PART}")
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb", buffering=0) as file:
                for piece in pieces:
                    _write_all(file, memoryview(piece))
                os.fsync(fd)
            os.rename(aside, os.path.join(self._path, name))
        except BaseException as error:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            if isinstance(error, OSError) and error.filename is None:  # as what `write` and `fsync` raise
                error.filename = aside
            raise
        folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(OSError):  # some file systems have no such thing; the commit stands
                os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._path, name))

    def mark(self, name: str, data: bytes, new: bool) -> None:
        made = os.O_CREAT if new else 0
        fd = os.open(os.path.join(self._path, name), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | made, 0o600)
        try:
            os.write(fd, data)
            os.ftruncate(fd, len(data))
        except OSError:
            if new and not os.fstat(fd).st_size:  # an empty file would be taken for that of an unknown process
                self.remove(name)
            raise
        finally:
            os.close(fd)

    def peek(self, name: str, most: int) -> bytes:
        fd = os.open(os.path.join(self._path, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, most)
        finally:
            os.close(fd)


class Remote:
    """A place behind a URL. It cannot be known which users can write there.

    Raises:
        UnsupportedError: fsspec is not installed.
        InvalidArgumentError: it does not know this kind of URL.
    """

    def __init__(self, url: str) -> None:
        fsspec = fsspec_for(url)
        self.where = url
        try:
            self._files, self._path = fsspec.core.url_to_fs(url)
            self._files.makedirs(self._path, exist_ok=True)
        except (ValueError, ImportError) as error:
            raise _unreachable(url, error) from None

    def names(self) -> list[str]:
        self._files.invalidate_cache(self._path)
        try:
            entries = self._files.ls(self._path, detail=True)
        except FileNotFoundError:  # where folders are only the beginnings of names, an empty one does not exist
            return []
        return [entry["name"].rpartition("/")[2] for entry in entries if entry.get("type") != "directory"]

    def require_own(self) -> None:
        raise StrangersError("who can write behind a URL is not known")

    def require_writable(self) -> None:
        """Does nothing: only a trial file would tell, which may stay where files cannot be removed."""

    def read(self, name: str, strangers: bool) -> bytearray:
        if not strangers:
            raise StrangersError("who can write behind a URL is not known")
        return bytearray(self._files.cat_file(f"{self._path}/{name}"))

    def write(self, name: str, pieces: Pieces) -> None:
        aside = f"{self._path}/.{name}.{os.getpid()}{PART}"
        with self._files.open(aside, "wb") as file:
            for piece in pieces:
                file.write(piece)
        self._files.mv(aside, f"{self._path}/{name}")

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(f"{self._path}/{name}")

    def mark(self, name: str, data: bytes, new: bool) -> None:
        if not new and name not in self.names():
            raise FileNotFoundError(errno.ENOENT, "it is gone", f"{self._path}/{name}")
        self._files.pipe_file(f"{self._path}/{name}", data)

    def peek(self, name: str, most: int) -> bytes:
        return bytes(self._files.cat_file(f"{self._path}/{name}")[:most])


def _require_own(path: str, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & _OTHERS_WRITE:
        mode = stat.filemode(found.st_mode)
        raise StrangersError(f"{path} ({mode}, of user {found.st_uid}) can be written by others than this user")


def _all_of(file: Any, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        count = file.readinto(view[done:])
        if not count:
            raise OSError("the file has become shorter")
        done += count
    return data


def _write_all(file: Any, piece: memoryview) -> None:
    piece = piece.cast("B")
    while piece:
        piece = piece[file.write(piece) :]
