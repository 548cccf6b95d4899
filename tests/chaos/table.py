"""The cases of the chaos matrix, as data.

`SHORT` are part of the default tests; each has several faults, because starting a job takes longer than recovering from
a fault. `LONG` are for `make test-slow`, `made_up` for `make chaos`.
"""

from __future__ import annotations

import signal

from .case_run import Act, Case
from .faults import PHASES, Fault, Orders

_AT_ONCE = ("--blacklist-cooldown-range", "1", "1")
# A stopped rank is noticed by these time-outs.
_IMPATIENT = (
    "--start-timeout", "3", "--gloo-timeout-seconds", "3",
    "--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "2",
)  # fmt: skip

SHORT = (
    Case(
        "ranks die in every part of a step, rank 0 first",
        5,
        (
            Fault("between", 4, "first"),
            Fault("reduce", 7, "last", "SEGV"),
            Fault("compare", 12, "first", "ABRT"),
            Fault("save", 15, "last"),
        ),
    ),
    Case(
        "two at once, and more during the recovery",
        6,
        (
            Fault("between", 4, "first+middle"),
            Fault("restore", 0, "last"),
            Fault("meet", 1, "first"),
            Fault("sync", 2, "last"),
        ),
    ),
    Case(
        "below the least and back, and a newcomer dies on its way",
        2,
        (Fault("between", 4, "last"), Fault("come", 2, "all")),
        ("--min-np", "2", *_AT_ONCE),
        orders=Orders(size=2),
        says=("1 rank of the 2 needed, waiting up to 600 s for more (rank 1 was killed by signal 9).",),
    ),
    Case(
        "a discovery script that fails, prints rubbish and hangs is of no account",
        2,
        (Fault("between", 1, "last", "SLOW"), Fault("between", 400, "last")),
        ("--min-np", "1"),
        (
            Act(0, "echo {2}"),
            Act(1, "exit 7", "failed with code 7: it printed nothing"),
            Act(2, "echo no host at all", "does not print a list of hosts"),
            Act(3, "sleep 60"),
        ),
        Orders(size=2),
    ),
    Case(
        "the launcher is killed while the others recover",
        3,
        (Fault("between", 4, "last"), Fault("reset", 1, "first", "SLOW")),
        acts=(Act(2, "KILL"),),
        code=-signal.SIGKILL,
    ),
    Case(
        "a rank is away for a moment, another is slow, one dies instead of leaving",
        3,
        (Fault("between", 4, "first", "PAUSE"), Fault("sync", 0, "last", "SLOW"), Fault("end", 1, "all")),
        options=("--stall-check-shutdown-time-seconds", "5", "--stall-check-warning-time-seconds", "2"),
        code=1,
        says=("have ended with code 0, and no rank is left to finish its work",),
    ),
)

_FIRST_LOSS = Fault("between", 4, "last")

LONG = (
    *(
        Case(f"{who} dies in {phase}", 3, (Fault("between", 7, "middle"), Fault(phase, when, who)))
        for phase, when in (("sync", 1), ("meet", 1), ("start", 1), ("reset", 1), ("restore", 0), ("ask", 0))
        for who in ("first", "last")
    ),
    *(
        Case(
            f"{who} stops in {phase}",
            3,
            (Fault(phase, 6, who, "STOP"),),
            _IMPATIENT,
            orders=Orders(size=3),
            says=("did not leave epoch 0 within 3 s of the others (--start-timeout)",),
            recovery_s=20,
        )
        for phase in ("between", "save", "reduce")
        for who in ("first", "last")
    ),
    *(
        Case(
            f"with {name}",
            4,
            (Fault("between", 4, "first"), Fault("sync", 1, "last"), Fault("reduce", 7, "last")),
            orders=Orders(binding=name),
            seconds=200,  # four imports of TensorFlow on two busy cores have taken 78
        )
        for name in ("torch", "tensorflow")
    ),
    Case("all at once", 2, (Fault("between", 5, "all"),), code=1, says=("the state that they had in memory is lost",)),
    Case(
        "all that are left, during the recovery",
        3,
        (_FIRST_LOSS, Fault("restore", 0, "all")),
        code=1,
        says=("the state that they had in memory is lost",),
    ),
    Case("a rank dies before the first epoch", 3, (Fault("come", 1, "all"),), orders=Orders(size=3)),
    Case("a rank dies while the first epoch meets", 3, (Fault("meet", 0, "last"),), orders=Orders(size=3)),
    Case(
        "the launcher is told to end during a recovery",
        3,
        (_FIRST_LOSS, Fault("reset", 1, "first", "SLOW")),
        acts=(Act(2, "TERM"),),
        code=128 + signal.SIGTERM,
    ),
    *(
        Case(
            f"{what} after a recovery ends the job",
            3,
            (_FIRST_LOSS, Fault("between", 9, "first", what)),
            code=code,
            says=(words,),
        )
        for what, code, words in (
            ("RAISE", 1, "a mistake of the program"),
            ("EXIT", 3, "exited with code 3"),
            ("MISMATCH", 1, "MismatchError"),
        )
    ),
    Case(
        "slots go and come",
        3,
        (Fault("between", 1, "last", "SLOW"),),
        ("--min-np", "1"),
        (Act(0, "echo {3}"), Act(1, "echo {1}", "epoch 1: 1 rank"), Act(2, "echo {4}", "epoch 2: 4 ranks")),
        orders=Orders(size=4),
    ),
)


def made_up(seed: str, size: int, number: int, binding: str = "numpy") -> Case:
    """A job that loses ranks and regains them until so many faults have happened."""
    return Case(
        f"{binding}, {size} ranks, seed {seed}",
        size,
        options=("--min-np", "2", *_AT_ONCE, *_IMPATIENT),
        orders=Orders(seed=seed, number=number, binding=binding),
        seconds=60 + 10.0 * number,
        recovery_s=40,
    )


def without_launcher(case: Case, what: str) -> Case:
    """The same, but for its end: when so many faults have happened, the launcher gets this signal in their midst."""
    number = signal.Signals[f"SIG{what}"]
    return case._replace(
        name=f"{case.name}, until the launcher gets SIG{what}",
        acts=(Act(case.orders.number, what),),
        orders=case.orders._replace(number=1 << 30),
        code=-number if what == "KILL" else 128 + number,
    )


assert all(fault.phase in PHASES for case in (*SHORT, *LONG) for fault in case.faults)
