"""Where the ranks of a case run. Here: this machine, with `horovodrun` started on it.

Another place (hosts behind ssh, say) derives from `Where`: its options name the hosts, its job looks at all of them
when it asks what is left. Ranks carry out their faults themselves, so nothing else depends on the place.
"""

from __future__ import annotations

import abc

from jobs import Job, Place, python


class Where(abc.ABC):
    """A place for cases."""

    @abc.abstractmethod
    def options(self, slots: int) -> list[str]:
        """Of horovodrun: the hosts with so many slots in all."""

    @abc.abstractmethod
    def hosts(self, slots: int) -> str:
        """The same as a discovery script prints it."""

    @abc.abstractmethod
    def start(self, place: Place, variables: dict[str, str], words: list[str]) -> Job:
        """Starts `horovodrun` with these words; the variables are for the ranks."""


class ThisMachine(Where):
    """All ranks here."""

    def options(self, slots: int) -> list[str]:
        return ["-H", f"localhost:{slots}"]

    def hosts(self, slots: int) -> str:
        return f"localhost:{slots}"

    def start(self, place: Place, variables: dict[str, str], words: list[str]) -> Job:
        job = Job(place, variables)
        job.start([*python("-m", "horovod.runner"), *words])
        return job
