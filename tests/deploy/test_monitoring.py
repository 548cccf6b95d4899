"""The dashboard and the PodMonitor: valid, and with the names that the launcher serves."""

from __future__ import annotations

import json
import re

import yaml

from horovod.runner.live.exposition import families
from horovod.runner.live.figures import Figures, Reading
from horovod.runner.live.straggler import Straggler
from horovod.runner.live.table import rows

from .tools import DEPLOY

ROOT = DEPLOY.parent
_WORD = re.compile(r"horovod_\w+")


def served() -> dict[str, set[str]]:
    """The labels of each sample, by its name."""
    row = rows({0: Reading(Figures(tensors=1, operations=((1, 4), *((0, 0),) * 8)), 0.0)}, {}, {})
    straggler = Straggler(0, 0, "a", 0.0, 0.5, True, False, 1.0)
    return {
        family.name + ("_total" if family.kind == "counter" else ""): set(family.labels)
        for family in families(row, straggler)
    }


def test_the_queries_of_the_dashboard_use_what_is_served() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "horovod.json").read_text())
    known = served()
    places = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        places.add((place["x"], place["y"]))
        for target in panel["targets"]:
            names = _WORD.findall(target["expr"])
            assert names and set(names) <= set(known), target
            assert target["expr"].count("(") == target["expr"].count(")")
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert any(label in known[name] for name in names), target
    assert len(places) == len(dashboard["panels"]) == len({panel["id"] for panel in dashboard["panels"]})


def test_the_page_has_every_metric_and_no_other() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    assert set(re.findall(r"`(horovod_\w+)`", text)) == set(served())


def test_the_pod_monitor_scrapes_the_port_of_the_page() -> None:
    monitor = yaml.safe_load((DEPLOY / "kubernetes" / "podmonitor.yaml").read_text())
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert f"--metrics-port {endpoint['targetPort']} " in (ROOT / "docs" / "monitoring.md").read_text()
    assert monitor["spec"]["selector"]["matchLabels"]["training.kubeflow.org/job-role"] == "launcher"
