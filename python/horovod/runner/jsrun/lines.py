"""The line that starts the ranks of a job with jsrun, and the options of horovodrun that do not work with it. Pure.

Used by `launchers.jsrun`. Ranks inherit jsrun's environment, so no value of a variable stands on the line. Facts: IBM
Spectrum LSF Job Step Manager, "jsrun command".
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from horovod._core.errors import UnsupportedError
from horovod._core.settings import Settings
from horovod.runner.mpi.lines import split


def line(program: str, rank_file: str, command: Sequence[str], settings: Settings) -> list[str]:
    """jsrun and its words.

    Args:
        program: jsrun itself.
        rank_file: that says where the ranks are; the user's own words for binding take its place.
        command: of the ranks.
        settings: of the job.

    Raises:
        InvalidArgumentError: a text of words cannot be split into words.
    """
    words = [program, *(split(settings.binding_args, "--binding-args") or ("--erf_input", rank_file))]
    if settings.output_filename:
        words += ["--stdio_stdout", f"{settings.output_filename}/stdout"]
        words += ["--stdio_stderr", f"{settings.output_filename}/stderr"]
    for_mpi = [*(["-tcp"] if settings.tcp else []), *split(settings.mpi_args, "--mpi-args")]
    if for_mpi:
        words += ["--smpiargs", shlex.join(for_mpi)]
    return [*words, *command]


def refuse_unmet(settings: Settings) -> None:
    """Refuses options that would have no effect.

    Raises:
        UnsupportedError: one of them was given.
    """
    unmet = (
        ("--ranks", settings.shown_ranks, "jsrun prints the output of all ranks"),
        (
            "--metrics-port",
            settings.metrics_port is not None,
            "jsrun starts the ranks, whose figures do not reach horovodrun",
        ),
        ("--stdin-rank", settings.stdin_rank is not None, "jsrun controls the ranks' input"),
        ("--prefix-output-with-timestamp", settings.prefix_output_with_timestamp, "jsrun cannot print timestamps"),
    )
    for flag, given, fact in unmet:
        if given:
            raise UnsupportedError(f"{flag} does not work with --jsrun: {fact}. Remedy: leave it out.")
