"""A folder with durable commits, for the tests of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from horovod._core.commits.places import Folder
from horovod._core.training.elastic.durable import DurableCommits
from horovod._core.training.elastic.snapshot import Snapshot


def commits(folder: Path, key: Optional[bytes] = None, keep: int = 2, training: int = 0) -> DurableCommits:
    return DurableCommits(Folder(str(folder)), key, training, 0, keep)


def write(to: DurableCommits, value: Any, epoch: int = 0) -> None:
    to.write({"attributes": Snapshot(value)}, epoch)
    to.close()


def named(count: int, run: int = 1, epoch: int = 0) -> str:
    return f"commit-0-{run:06d}-{epoch:06d}-{count:09d}.hvd"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("owner-"))
