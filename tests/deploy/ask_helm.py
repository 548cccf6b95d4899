"""Lints or renders a Helm chart: `ask_helm.py lint|render CHART VALUES`, VALUES in JSON; prints JSON.

What `helm lint --strict` and `helm template` do, by the same Go code, bound to Python by helm-python-sdk, whose Python
runs this. Not a test itself.
"""

from __future__ import annotations

import json
import sys

import helm_python


def main(verb: str, place: str, values: str) -> None:
    """Prints the messages of the linter, [[severity, text], ...] with 3 for an error; or what the templates make."""
    if verb == "lint":
        report = helm_python.lint(place, json.loads(values), strict=True)
        told = [[message["severity"], f"{message['path']}: {message['error']}"] for message in report["messages"]]
        print(json.dumps(told + [[3, error] for error in report["errors"]]))
        return
    try:
        with helm_python.Chart.load(place) as chart:
            print(json.dumps(chart.render(json.loads(values), name="training", namespace="research")))
    except helm_python.HelmError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
