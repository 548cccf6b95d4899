"""The MPIJobs: valid for the operator and for Kubernetes, and lines that horovodrun understands."""

from __future__ import annotations

import pytest

from horovod.runner.options import flags

from .tools import DEPLOY, complaints, line, manifest_of, replica

FILES = ("mpijob.yaml", "mpijob-mpirun.yaml")


def after(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize("name", FILES)
def test_the_line_starts_as_many_ranks_as_there_are_slots(name: str) -> None:
    manifest = manifest_of(name)
    workers, slots = replica(manifest, "Worker")["replicas"], manifest["spec"]["slotsPerWorker"]
    words = line(manifest)
    assert after(words, "-np") == str(workers * slots)
    assert after(words, "--hostfile") == "/etc/mpi/hostfile"
    if words[0] == "mpirun":
        assert f"HOROVOD_EXPECTED_SIZE={workers * slots}" in words and f"HOROVOD_EXPECTED_HOSTS={workers}" in words
    else:
        assert words[0] == "horovodrun"
        assert list(flags.parse(words[1:]).command) == ["python", "/workspace/train.py"]


def test_both_jobs_are_the_same_but_for_the_launcher() -> None:
    first, second = (manifest_of(name) for name in FILES)
    for each in (first, second):
        del each["metadata"]["name"]
        container = replica(each, "Launcher")["container"]
        del container["command"], container["args"]
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_the_manifest_is_valid(name: str) -> None:
    assert complaints((DEPLOY / "kubernetes" / name).read_text()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("slotsPerWorker: 2", "slotPerWorker: 2", "'slotPerWorker' was unexpected"),
        ("slotsPerWorker: 2", 'slotsPerWorker: "2"', "'2' is not of type 'integer'"),
        ("WaitForWorkersReady", "WhenWorkersAreReady", "is not one of ['AtStartup', 'WaitForWorkersReady']"),
        ("kubeflow.org/v2beta1", "kubeflow.org/v1", "'kubeflow.org/v2beta1' was expected"),
        ("    Launcher:", "    Master:", "'Launcher' is a required property"),
        ("readinessProbe", "readynessProbe", "'readynessProbe' was unexpected"),
        ("command: [horovodrun]", "command: horovodrun", "Launcher, Kubernetes 1.25: spec.containers.0.command"),
        ("runAsNonRoot: true", "runAsNonRoot: yes please", "securityContext.runAsNonRoot"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_found(old: str, new: str, why: str) -> None:
    text = (DEPLOY / "kubernetes" / "mpijob.yaml").read_text()
    assert old in text
    assert why in "\n".join(complaints(text.replace(old, new)))
