"""Prints what the manifests and the program of deploy/azureml ask Azure ML for, as JSON; complains like its own client.

Run with the Python that has azure-ai-ml, which checks them against its schemas without any account. Not a test itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def asked(node: Any) -> dict[str, Any]:
    """What decides how many ranks there are, and their settings."""
    resources = node.resources
    count = resources["instance_count"] if isinstance(resources, dict) else resources.instance_count
    return {
        "nodes": count,
        "processes": node.distribution.process_count_per_instance,
        "kind": node.distribution.type,
        "variables": dict(node.environment_variables or {}),
    }


def main(folder: str) -> None:
    """A row for the component, the pipeline of pipeline.yml and that of submit.py."""
    from azure.ai.ml import Input, load_component, load_job

    sys.path.insert(0, folder)
    import submit

    component = load_component(Path(folder, "component.yml"))
    pipeline = load_job(Path(folder, "pipeline.yml"))
    program = submit.training(reviews=Input(type="uri_folder", path="azureml:reviews@latest"))
    for each in (component, pipeline, program):
        result = each._validate()
        if not result.passed:
            sys.exit(str(result.error_messages))
    found = {"pipeline": asked(pipeline.jobs["train"]), "program": asked(program.jobs["step"])}
    print(json.dumps({**found, "inputs": sorted(component.inputs), "command": component.command}))


if __name__ == "__main__":
    main(sys.argv[1])
