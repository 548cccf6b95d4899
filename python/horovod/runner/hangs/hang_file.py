"""The file with the dumps of all ranks: where it goes, and what is in it.

Used by `hang`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Optional

from horovod._dumps import paths
from horovod.runner.machines.limits import allowed_descriptors
from horovod.runner.processes import runtime_directory
from horovod.runner.processes.process import RankProcesses

if TYPE_CHECKING:
    from horovod._dumps.values import Dump

_FILE: Final = "hang"


class HangFile:
    """See the head of the file.

    Args:
        keep_in: the user's directory for it; None: a private directory, until the job ends.
        private: that directory; None: one is made when it is needed.
        afterwards: the directory to which the last file is copied if the job fails; None: it is not copied.
    """

    def __init__(
        self, keep_in: Optional[Path], private: Optional[Path] = None, afterwards: Optional[Path] = None
    ) -> None:
        self._afterwards = afterwards
        self._last: Optional[tuple[Sequence[str], Mapping[int, Dump]]] = None  # the keeper removes the directory
        self._keep_in = keep_in
        self._private = private
        self._made: Optional[runtime_directory.JobDirectory] = None
        self._keeper: Optional[RankProcesses] = None  # without ranks; removes the directory if this process is killed

    def write(self, lines: Sequence[str], dumps: Mapping[int, Dump]) -> str:
        """Writes it for people, and the same for programs beside it. Returns where, in words: where the user's
        directory cannot be written, among the job's private files."""
        from horovod._dumps import files

        why = "--dump-directory keeps them"
        if self._keep_in:
            try:
                paths.make_directory(self._keep_in)
                files.remove_old_drafts(self._keep_in)
                return f"all stacks: {_written(self._keep_in / _FILE, lines, dumps)}"
            except OSError as error:
                why = f"{self._keep_in} cannot be written: {error.strerror or error}"
        self._last = lines, dumps
        if self._afterwards is not None:
            why += f"; if the job fails, they are copied to {self._afterwards}"
        try:
            return f"all stacks: {_written(self._own_place() / _FILE, lines, dumps)}, until the job ends; {why}"
        except OSError as error:
            return f"the dumps could not be written: {error}"

    def close(self, failed: bool = False) -> str:
        """Removes the directory that was made; returns what is kept, in words. May be called twice."""
        last, self._last = self._last, None
        self._remove()
        if last is None or self._afterwards is None or not failed:
            return ""
        when = time.strftime("%Y%m%d-%H%M%S")
        try:
            path = _written(self._afterwards / f"horovod-{_FILE}-{when}-{os.getpid()}", *last)
        except OSError as error:
            return f"the stacks of all ranks could not be kept in {self._afterwards}: {error.strerror or error}."
        return f"the stacks of all ranks are kept in {path}."

    def _remove(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None
        made, self._made = self._made, None
        if made is not None:
            made.remove()

    def _own_place(self) -> Path:
        if self._private:
            return self._private
        if self._made is None:
            self._made = runtime_directory.create()
            with allowed_descriptors(0) as open_files:
                self._keeper = RankProcesses(["true"], {}, [], "/", self._made, open_files)
        return self._made.path


def _written(base: Path, lines: Sequence[str], dumps: Mapping[int, Dump]) -> Path:
    """The file for people, after both have been written: the base with another end for each."""
    from horovod._dumps import files, readable, values

    ranks = ",\n".join(values.to_json(dumps[rank], indent=None) for rank in sorted(dumps))
    for_programs, text = base.with_name(f"{base.name}.json"), base.with_name(f"{base.name}.txt")
    files.write(for_programs, f'{{"lines": {json.dumps(lines)}, "ranks": [\n{ranks}\n]}}\n')
    try:
        files.write(text, readable.all_ranks(lines, dumps))
    except OSError:
        for_programs.unlink()
        raise
    return text
