"""Fixtures: one Slurm for all tests, started when the first asks for it; each launcher; a place for jobs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from jobs import Place

from . import slurm
from .starters import BY_ID, STARTERS, Starter


@pytest.fixture(scope="session")
def cluster() -> Iterator[slurm.Cluster]:
    """A running Slurm."""
    missing = slurm.why_absent()
    if missing is not None:
        pytest.skip(missing)
    with slurm.Cluster() as running:
        yield running


@pytest.fixture
def place() -> Iterator[Place]:
    """Folders for jobs."""
    with Place() as made:
        yield made


def present(name: str, request: pytest.FixtureRequest) -> Starter:
    """The launcher, ready for use; skips the test when it is not there."""
    found = BY_ID[name]
    if name == "srun":
        return dataclasses.replace(found, environ=request.getfixturevalue("cluster").environ)
    missing = found.why_absent()
    if missing is not None:
        pytest.skip(missing)
    return found


@pytest.fixture(params=[starter.id for starter in STARTERS])
def starter(request: pytest.FixtureRequest) -> Starter:
    """Each launcher in turn."""
    return present(request.param, request)
