"""An elastic training on several hosts, and what its ranks told. Used by the tests of elastic jobs over hosts."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.report import VARIABLE, events_in

from .conftest import ROOT, Ended, Hosts
from .network import Running

TRAINING = ROOT / "tests" / "integration" / "elastic" / "workers" / "training.py"
PATIENCE_S = 90.0
_RETRY_S = 0.01


class ElasticJob:
    """A job whose launcher is on the first host.

    Args:
        hosts: that there are.
        options: of horovodrun.
        faults: see the training.
        environ: further variables of it, without TEST_.
    """

    def __init__(self, hosts: Hosts, options: str, faults: Sequence[Any] = (), **environ: object) -> None:
        self._hosts = hosts
        self.folder = Path(tempfile.mkdtemp(prefix="hvdelastic"))
        path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests")])
        told = {f"TEST_{name.upper()}": str(value) for name, value in environ.items()}
        variables = {VARIABLE: str(self.folder), "PYTHONPATH": path, "TEST_FAULTS": json.dumps(faults), **told}
        words = [sys.executable, str(TRAINING)]
        self.running: Running = hosts.start(f"{options} --elastic-log {self.log}", words, environ=variables)

    @property
    def log(self) -> Path:
        """The journal."""
        return self.folder / "journal"

    def __enter__(self) -> ElasticJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.running.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """What ranks have told so far."""
        return [event for event in events_in(self.folder) if event["event"] == kind]

    def until(self, look: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
        """Waits until `look` finds something."""
        deadline_s = time.monotonic() + patience_s
        while not (found := look()):
            over = self.running.entered.poll() is not None
            assert time.monotonic() < deadline_s and not over, self.story()
            time.sleep(_RETRY_S)
        return found

    def steps(self, **wanted: object) -> list[dict[str, Any]]:
        """Steps that were done with these values."""
        return [event for event in self.events("step") if all(event[name] == value for name, value in wanted.items())]

    def journal(self) -> list[dict[str, Any]]:
        """What has happened and was decided."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def end(self) -> Ended:
        """Waits for the end; nothing is left on any host."""
        return self._hosts.end(self.running, patience_s=PATIENCE_S)

    def story(self) -> str:
        """For messages."""
        lines = [json.dumps(event) for event in events_in(self.folder)][-60:]
        journal = self.log.read_text() if self.log.exists() else ""
        return "\n".join(lines) + "\n" + journal

    def check_end(self, ended: Ended, size: int) -> None:
        """All ranks that were there at the end hold the state of a training without faults."""
        text = "\n".join(ended.err) + self.story()
        assert ended.code == 0, text
        last = self.events("end")
        assert sorted(event["rank"] for event in last) == list(range(size)), text
        assert all(event["right"] and event["size"] == size for event in last), text
        assert len({event["hash"] for event in last}) == 1, text
