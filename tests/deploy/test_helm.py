"""The chart, by Helm's own engine: `helm lint --strict` is content, `helm template` makes valid jobs of any values."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from horovod.runner.options import flags

from .tools import DEPLOY, checker, complaints, line, manifest_of, replica

pytestmark = pytest.mark.slow

CHART = str(DEPLOY / "helm" / "horovod")
EVERYTHING = {
    "image": {"repository": "example.org/train", "tag": "2", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "runAsUser": 1500,
    "sshPort": 2200,
    "sshAuthMountPath": "/home/me/.ssh",
    "workers": 3,
    "slotsPerWorker": 8,
    "command": ["python", "-u", "my train.py", "--name", 'a "b"'],
    "launcherArgs": ["--verbose"],
    "env": {"HOROVOD_TIMELINE": "/data/timeline.json", "HOROVOD_CYCLE_TIME": 1, "FLAG": True},
    "gpus": 8,
    "resources": {"limits": {"cpu": "32", "memory": "256Gi"}, "requests": {"cpu": "16"}},
    "launcherResources": {"limits": {"memory": "2Gi"}},
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "digits"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "nodeSelector": {"gpu": "h100"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"podAntiAffinity": {}},
    "cleanPodPolicy": "None",
    "ttlSecondsAfterFinished": 0,
    "activeDeadlineSeconds": 3600,
    "backoffLimit": 2,
}


def lint(values: dict[str, Any]) -> list[str]:
    """Errors and warnings."""
    done = checker("ask_helm.py", "lint", CHART, json.dumps(values))
    assert done.returncode == 0, done.stderr
    return [text for severity, text in json.loads(done.stdout) if severity > 1]


def rendered(values: dict[str, Any]) -> str:
    """The MPIJob."""
    done = checker("ask_helm.py", "render", CHART, json.dumps(values))
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["horovod/templates/mpijob.yaml"])


@pytest.mark.parametrize(
    "values", [{}, EVERYTHING, {**EVERYTHING, "launcher": "mpirun"}], ids=["none", "all", "mpirun"]
)
def test_lint_and_template_are_content(values: dict[str, Any]) -> None:
    assert lint(values) == []
    assert complaints(rendered(values)) == []


def test_without_values_it_is_the_job_of_the_manifest() -> None:
    made, written = yaml.safe_load(rendered({})), manifest_of("mpijob.yaml")
    assert sorted(line(made)) == sorted(line(written))
    assert made["spec"].keys() == written["spec"].keys()
    for role in ("Launcher", "Worker"):
        one, other = (replica(each, role)["container"] for each in (made, written))
        assert {**one, "imagePullPolicy": "", "securityContext": "", "args": ""} == {
            **other, "imagePullPolicy": "", "securityContext": "", "args": "",
        }  # fmt: skip


@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_every_value_has_an_effect(launcher: str) -> None:
    text = rendered({**EVERYTHING, "launcher": launcher})
    made = yaml.safe_load(text)
    words, worker = line(made), replica(made, "Worker")
    assert words[-5:] == EVERYTHING["command"] and words[words.index("-np") + 1] == "24"
    if launcher == "horovodrun":
        assert list(flags.parse(words[1:]).command) == EVERYTHING["command"]
    else:
        assert "HOROVOD_EXPECTED_SIZE=24" in words and "HOROVOD_TIMELINE" in words
    assert worker["container"]["resources"]["limits"] == {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": 8}
    given = {each["name"]: each["value"] for each in replica(made, "Launcher")["container"]["env"]}
    assert given == {"HOROVOD_TIMELINE": "/data/timeline.json", "HOROVOD_CYCLE_TIME": "1", "FLAG": "true"}
    without = [
        name
        for name in EVERYTHING
        if rendered({key: value for key, value in {**EVERYTHING, "launcher": launcher}.items() if key != name}) == text
    ]
    assert without == []


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"workers": 0}, "at '/workers': minimum: got 0, want 1"),
        ({"launcher": "srun"}, "at '/launcher': value must be one of 'horovodrun', 'mpirun'"),
        ({"worker": 3}, "additional properties 'worker' not allowed"),
        ({"command": "python train.py"}, "at '/command': got string, want array"),
        ({"runAsUser": 0}, "at '/runAsUser': minimum"),
    ],
)
def test_wrong_values_are_refused(values: dict[str, Any], why: str) -> None:
    assert why in checker("ask_helm.py", "render", CHART, json.dumps(values)).stderr
    assert lint(values)
