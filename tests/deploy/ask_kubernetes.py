"""Prints what is wrong with the manifests on standard input, a line for each offence; nothing is wrong: nothing.

Run with the Python that has kubernetes-validate. Not a test itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

SCHEMA = json.loads(Path(__file__).with_name("mpijob_v2beta1.json").read_text())
# The oldest that the chart allows, and the newest whose schemas are there.
VERSIONS = ("1.25", kubernetes_validate.latest_version())


def offences(manifest: dict[str, Any]) -> Iterator[str]:
    """Of one MPIJob."""
    for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(manifest):
        yield f"{error.json_path}: {error.message}"
    for role, replica in manifest.get("spec", {}).get("mpiReplicaSpecs", {}).items():
        template = {"metadata": {"name": role.lower()}, **replica.get("template", {})}
        for version in VERSIONS:
            try:
                kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **template}, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{role}, Kubernetes {version}: {'.'.join(map(str, error.path))}: {error.message}"


if __name__ == "__main__":
    for each in yaml.safe_load_all(sys.stdin):
        for offence in offences(each or {}):
            print(offence)
