"""A module `ray` whose references are answers that come at a time; no cluster, no process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(eq=False)
class Answer:
    """A reference: what comes, after so many seconds since it was made."""

    value: Any
    after_s: float = 0.0

    def __post_init__(self) -> None:
        self.at_s = time.monotonic() + self.after_s


class FakeRay:
    """See the head of the file."""

    def wait(
        self, references: Sequence[Answer], num_returns: int, timeout: Optional[float]
    ) -> tuple[list[Answer], list[Answer]]:
        until_s = time.monotonic() + (10.0 if timeout is None else timeout)
        while True:
            done = [each for each in references if each.at_s <= time.monotonic()][:num_returns]
            if len(done) == num_returns or time.monotonic() >= until_s:
                return done, [each for each in references if each not in done]
            time.sleep(0.005)

    def get(self, reference: Answer) -> Any:
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value
