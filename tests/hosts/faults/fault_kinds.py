"""What can happen to a job on several hosts, as data: how it is done and undone, and what must then hold.

Used by `fault_case`. The job has ranks 0 | 1, 2 | 3 on three hosts, the launcher on the first; the victim is rank 1 and
its host the second, which in the negotiation's tree is no neighbour of the third.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fault_case import FaultCase

PHASES = ("init", "between", "large", "small", "shutdown", "reinit")
VICTIM = 1
# The deadlines that these jobs set, of a start and of all else: long enough that a cut link is found first.
START_S, DEADLINE_S = 10, 7
SHORT_STOP_S = 5.0


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Attributes:
        apply: does it, to a running job whose victim has come to the place.
        undo: afterwards, whatever came of it; called once.
        again_s: the job is well if it is undone after so many seconds; 0: it stays.
        well: the job must come to a good end.
        within_s: until every rank has ended, from the fault on.
        code: of the launcher; None: it is the one that is killed.
        culprit: text of which one must stand in what each surviving rank raises.
        told: text that must stand in what the launcher says.
        options: of horovodrun.
    """

    apply: Callable[[FaultCase], None]
    undo: Callable[[FaultCase], None] = lambda case: None
    again_s: float = 0.0
    well: bool = False
    within_s: float = 5.0
    code: tuple[int, ...] = (0,)
    culprit: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    options: str = ""


def _cut(case: FaultCase) -> None:
    case.network.cut(case.network[2])


def _join(case: FaultCase) -> None:
    case.network.join(case.network[2])


def _drop_both(case: FaultCase) -> None:
    case.network.drop(case.network[2], case.network[3])
    case.network.drop(case.network[3], case.network[2])


def _drop_one(case: FaultCase) -> None:
    case.network.drop(case.network[2], case.network[3])


def _pass(case: FaultCase) -> None:
    case.network.pass_all()


def _stop(case: FaultCase) -> None:
    os.kill(case.victim(), signal.SIGSTOP)


def _go_on(case: FaultCase) -> None:
    case.signal(case.victim_pid, signal.SIGCONT)


def _fill_shared_memory(case: FaultCase) -> None:
    case.on(2, "mount -o remount,size=4k /dev/shm || true; head -c 600m /dev/zero > /dev/shm/fill 2>/dev/null; true")


def _empty_shared_memory(case: FaultCase) -> None:
    case.on(2, "rm -f /dev/shm/fill; mount -o remount,size=512m /dev/shm")


def _fill_disk(case: FaultCase) -> None:
    case.on(1, f"head -c 1m /dev/zero > {case.disk}/fill 2>/dev/null; true")


def _delay(case: FaultCase) -> None:
    case.network.wire(case.network[2], delay_s=0.2)


def _lose(case: FaultCase) -> None:
    case.network.wire(case.network[2], loss=0.02)


def _unwire(case: FaultCase) -> None:
    case.network.unwire(case.network[2])


_HOST2 = ("rank 1", "rank 2", "Rank 1", "Rank 2", "host2")
_LINK = (*_HOST2, "rank 3", "Rank 3", "host3")
_GONE = ("host2 (ranks 1, 2) was lost",)
_SHORT_CUTS = "--link-timeout 3"  # test_cuts_over_hosts tries other ones

FAULTS = {
    "kill -9 of a rank": Fault(
        lambda case: os.kill(case.victim(), signal.SIGKILL),
        within_s=3.0,
        code=(137,),
        culprit=("rank 1 ", "Rank 1 "),
        told=("rank 1 (host2, pid ",),
    ),
    "rank stopped, past the deadline": Fault(
        _stop, _go_on, within_s=START_S + 3.5, code=(1, 137), culprit=("rank 1", "Rank 1"), told=("rank ",)
    ),
    "rank stopped, short of the deadline": Fault(
        _stop, _go_on, again_s=SHORT_STOP_S, well=True, within_s=SHORT_STOP_S + 5.0, options=_SHORT_CUTS
    ),
    "link of a host cut": Fault(_cut, _join, code=(1,), culprit=_HOST2, told=_GONE, within_s=6.0, options=_SHORT_CUTS),
    "link between two hosts cut": Fault(
        _drop_both, _pass, code=(1,), culprit=_LINK, told=("rank ",), within_s=5.5, options=_SHORT_CUTS
    ),
    "one direction of it cut": Fault(
        _drop_one, _pass, code=(1,), culprit=_LINK, told=("rank ",), within_s=5.5, options=_SHORT_CUTS
    ),
    # A rank that waits beside one that receives a large tensor from far away, for longer than the deadline, waits on.
    "link delayed by 200 ms": Fault(_delay, _unwire, well=True, within_s=60.0, options="--start-timeout 30"),
    "link loses 2 % of the packets": Fault(_lose, _unwire, well=True, within_s=60.0),
    "launcher killed": Fault(lambda case: case.running.signal(signal.SIGKILL), code=(-9, 137)),
    "launcher told to end": Fault(
        lambda case: case.running.signal(signal.SIGTERM), code=(143,), told=("stopped by SIGTERM",)
    ),
    "terminal closed": Fault(lambda case: case.running.signal(signal.SIGHUP), code=(129,), told=("stopped by SIGHUP",)),
    "agent killed": Fault(
        lambda case: os.kill(case.process_on(2, "runner.remote.agent"), signal.SIGKILL),
        code=(1,),
        culprit=_HOST2,
        told=_GONE,
    ),
    "sshd's session killed": Fault(
        lambda case: os.kill(case.process_on(2, "sshd-session", "sshd:"), signal.SIGKILL),
        code=(1,),
        culprit=_HOST2,
        told=_GONE,
    ),
    "/dev/shm full on a host": Fault(_fill_shared_memory, _empty_shared_memory, well=True, within_s=10.0),
    "disk full under the ranks' output": Fault(
        _fill_disk, well=True, within_s=10.0, options="--output-filename {disk}/out", told=("No space left",)
    ),
}


# In shutdown nobody needs anybody any more: the others end well, and so does the launcher once the last rank has ended.
_IN_SHUTDOWN: dict[str, dict[str, Any]] = {
    "rank stopped, past the deadline": {"again_s": START_S + 1.0, "well": True, "within_s": START_S + 6.0, "told": ()},
    # The launcher reaches all hosts, and no rank needs that link any more.
    "link between two hosts cut": {"well": True, "told": ()},
    "one direction of it cut": {"well": True, "told": ()},
}


def fault_of(name: str, phase: str) -> Fault:
    """What happens, and what must hold."""
    changed = _IN_SHUTDOWN.get(name, {}) if phase == "shutdown" else {}
    return dataclasses.replace(FAULTS[name], **changed)


def cases() -> list[tuple[str, str]]:
    """Every kind of fault in every phase."""
    return [(name, phase) for name in FAULTS for phase in PHASES]
