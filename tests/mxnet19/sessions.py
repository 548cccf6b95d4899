"""`horovod.mxnet` with MXNet: `make test-mxnet`. MXNet needs an old NumPy, so it has an environment of its own, and by
the name of the file no other run of the tests collects this."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from contract_job import run_job
from jobs import ROOT, horovodrun, run, run_well

PARTS = ("cases", "semantics", "sets")


# Its own functions have no join and no asynchronous handles.
@pytest.mark.parametrize(("target", "parts"), [("mxnet", (*PARTS, "join", "life")), ("mxnet by its engine", PARTS)])
def test_contract(target: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    for report in run_job(2, target, parts, tmp_path):
        counts = {part: counts["run"] for part, counts in report["counts"].items()}
        assert counts["cases"] > 600 and counts["semantics"] > 45 and counts.keys() == set(parts)


def test_facts() -> None:
    ended = run(horovodrun(2, Path(__file__).parent / "facts.py"), None, patience_s=110)
    reports = ended.of("mxnet")
    assert ended.code == 0 and len(reports) == 2 and not any(one["failures"] for one in reports), str(ended)


def test_digits() -> None:
    for ranks in (2, 1):
        said = run_well(horovodrun(ranks, ROOT / "examples" / "mxnet" / "digits.py"))
        assert float(re.search(rf"accuracy on 357 test images: (0\.\d+) \({ranks} rank", said)[1]) > 0.93


def test_reduction_overlaps_the_backward_pass(tmp_path: Path) -> None:
    """The timeline: the last layer's gradient has been reduced long before the first layer's is asked for."""
    trace = tmp_path / "trace.json"
    script = Path(__file__).parent / "overlap.py"
    # Else MXNet runs the whole pass as one operation, and all gradients come at its end.
    each = {"MXNET_EXEC_BULK_EXEC_TRAIN": "0"}
    said = run_well(horovodrun(2, script), {"HOROVOD_TIMELINE": str(trace), **each})
    backward_us = 1e6 * float(said.partition("BACKWARD ")[2].split()[0])
    spans: dict[str, list[float]] = {}
    names: dict[int, str] = {}
    for event in json.loads(trace.read_text()):
        if event.get("name") == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif "ts" in event and event.get("pid") in names:
            spans.setdefault(names[event["pid"]], []).append(event["ts"])
    mine = sorted((max(times), name) for name, times in spans.items() if "gradient.layer" in name)
    assert len(mine) == 6 and "layer5" in mine[0][1] and "layer0" in mine[-1][1], mine
    first_ends, last_begins = mine[0][0], min(spans[mine[-1][1]])
    assert last_begins - first_ends > backward_us / 3, (mine, backward_us)
