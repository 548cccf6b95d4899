"""Probes of what was chosen: the settings with where each came from, and what this process is to its launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from horovod._core.settings import BY_NAME, Settings, notices, unknown_variables
from horovod._net.clusters import users_secret
from horovod._net.clusters.launchers import detect_placement
from horovod._net.failures import PlacementError
from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding


def effective(settings: Settings, remarks: Sequence[str], environ: Mapping[str, str]) -> list[Finding]:
    """Every setting that somebody gave, where it came from, and what of it has no effect.

    Args:
        settings: effective.
        remarks: on the keys of the file.
        environ: of this process.
    """
    found = []
    for name, value in settings.given().items():
        setting, source = BY_NAME[name], settings.source(name)
        origin = f"environment {setting.env}" if source == "environment" else source
        unit = f" {setting.unit}" if setting.unit and setting.kind != "cores" else ""
        found.append(Finding(name, FACT, f"{setting.text(value)}{unit} ({origin})"))
    found = found or [Finding("defaults", WORKS, "nothing was given (docs/settings.md has the defaults)")]
    without_effect = [*unknown_variables(environ), *remarks, *notices(settings)]
    found += [Finding("without effect", FAULT, text) for text in without_effect]
    return found + _secret(settings.secret_file)


def _secret(path: Optional[str]) -> list[Finding]:
    """Whether ranks of several hosts could use the secret that the user has given."""
    try:
        return [Finding("secret", WORKS, f"{path} can be used here")] if path and users_secret.read(path) else []
    except PlacementError as error:
        return [Finding("secret", FAULT, str(error))]


def unreadable(why: str) -> list[Finding]:
    """The finding where a setting cannot be read, so that the others are unknown."""
    return [Finding("settings", FAULT, why, "hvd.init() and horovodrun refuse it as well.")]


def launcher(environ: Mapping[str, str]) -> list[Finding]:
    """Which launcher would give `hvd.init()` its rank here."""
    try:
        place = detect_placement(dict(environ))  # a copy: the secret is taken out of it
    except PlacementError as error:
        remedy = "hvd.init() refuses that; open a new shell, or start the job with its launcher."
        return [Finding("rank", FAULT, str(error), remedy)]
    if place.size == 1:
        return [Finding("launcher", ABSENT, "this shell belongs to no job: hvd.init() is rank 0 of 1")]
    return [Finding(place.launcher, FACT, f"rank {place.rank} of {place.size}, local rank {place.local_rank}")]
