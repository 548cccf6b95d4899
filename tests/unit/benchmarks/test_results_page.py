"""The page of results: figures from a report, pictures from figures, and words around them."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import results_page
from harness import report
from harness.contest import Entry
from harness.row import Row
from jobs.needs import needs
from results import figures
from results.text import page


def entry(label: str, kind: str, seconds: float, void: str | None = None) -> Entry:
    return Entry(label, kind, [[seconds]], void)


def curve_row(size: int, ours_s: float, operation: str = "allreduce", ranks: int = 2) -> Row:
    entries = [entry("ours (torch)", "ours", ours_s), entry("openmpi", "peer", 2 * ours_s)]
    entries += [entry("ours (numpy)", "info", 1.0), entry("mpich", "peer", 1.0, "missing: no wheel")]
    return Row(f"{operation} {size} on {ranks}", entries, operation=operation, size_bytes=size, ranks=ranks)


def one_run(factor: float) -> list[Row]:
    resident = Row("r", [entry("ours, resident", "ours", 0.005)], operation="allreduce, resident", size_bytes=1 << 24)
    loop = [("ours (torch) plain", 0.08), ("ours (torch) wrapped", 0.1), ("torch gloo wrapped", 0.2)]
    return [
        curve_row(1 << 24, 0.02 * factor),
        curve_row(1 << 10, 1e-5 * factor),
        resident,
        curve_row(1 << 20, 1e-3, "broadcast", 4),
        Row("ResNet-50 gradients, one step", [entry("mpich", "peer", 0.02), entry("ours", "ours", 0.04)]),
        Row("training loop, ResNet-50-shaped", [entry(label, "info", seconds) for label, seconds in loop]),
    ]


@pytest.fixture
def recorded() -> dict[str, Any]:
    about = report.About(["a setting"], ["a machine in some state"], "2026-01-02", "abc1234")
    made: dict[str, Any] = json.loads(report.as_json([one_run(1), one_run(3), one_run(2)], about))
    return made


CELLS = [
    {"name": "idle rank 0", "runs": 20, "worst_raised_s": 0.25, "complaints": []},
    {
        "name": "idle rank 1",
        "runs": 20,
        "worst_raised_s": float("inf"),
        "complaints": ["rank 2 did not raise", "code 0"],
    },
    {"name": "idle rank 3", "runs": 0, "worst_raised_s": None, "complaints": ["the job hangs"]},
]


def test_curves_are_medians_of_the_runs(recorded: dict[str, Any]) -> None:
    allreduce, broadcast = figures.curves(recorded)
    assert (allreduce.title, broadcast.title) == ("allreduce, 2 ranks", "broadcast, 4 ranks")
    assert allreduce.lines == {
        "ours (torch)": [(1 << 10, pytest.approx(1024 / 2e-5)), (1 << 24, pytest.approx((1 << 24) / 0.04))],
        "openmpi": [(1 << 10, pytest.approx(1024 / 4e-5)), (1 << 24, pytest.approx((1 << 24) / 0.08))],
        "ours, resident": [(1 << 24, pytest.approx((1 << 24) / 0.005))],
    }


def test_bars(recorded: dict[str, Any]) -> None:
    step, scaling, faults = figures.step(recorded), figures.scaling(recorded), figures.faults(CELLS)
    assert step and list(step.values.items()) == [("mpich", pytest.approx(20)), ("ours", pytest.approx(40))]
    assert scaling and scaling.values == {"ours (torch)": pytest.approx(80)}  # gloo's plain loop is missing
    assert faults and faults.values == {"idle rank 0": pytest.approx(250)}
    assert faults.note.startswith("40 runs; broken promises: 3.")


def test_shares_are_those_of_the_table_by_ranks(recorded: dict[str, Any]) -> None:
    shares = figures.shares(recorded)
    assert shares
    sizes = {
        ranks: {operation: [one.size_bytes for one in cells] for operation, cells in lines.items()}
        for ranks, lines in shares.panels().items()
    }
    assert sizes == {2: {"allreduce": [1 << 10, 1 << 24]}, 4: {"broadcast": [1 << 20]}}


def test_a_report_without_such_rows_has_no_pictures(recorded: dict[str, Any]) -> None:
    assert results_page.pictures_of({**recorded, "shares": [], "runs": [[]]}, None) == []


def test_the_page_says_when_where_and_how(recorded: dict[str, Any]) -> None:
    text = page(recorded, results_page.pictures_of(recorded, CELLS))
    for words in (
        "2026-01-02",
        "abc1234",
        "a machine in some state",
        "a setting",
        "![allreduce, 2 ranks](allreduce-2-ranks.svg)",
    ):
        assert words in text
    assert "| GB/s | 1 KB | 16 MB |\n|---|---|---|\n| ours (torch) | 0.0512 | 0.419 |" in text
    assert "| ours, resident | - | 3.36 |" in text
    assert "| | 1 KB | 16 MB | 4 ranks: 1 MB |\n|---|---|---|---|\n| allreduce | 2.00 | 2.00 |  |" in text
    assert "- ResNet-50 gradients, one step: 0.50 of the best peer's speed (3 pairs, too few" in text
    assert "broken promises: 3." in text


@needs("matplotlib")
def test_pictures_are_the_same_every_time(recorded: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(recorded))
    (tmp_path / "faults.json").write_text(json.dumps(CELLS))
    drawn = []
    for name in ("first", "second"):
        words = ["--report", "report.json", "--faults", "faults.json", "--output", name]
        assert results_page.main([str(tmp_path / word) if "--" not in word else word for word in words]) == 0
        drawn.append({path.name: path.read_text() for path in (tmp_path / name).iterdir()})
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) == [
        "README.md",
        "allreduce-2-ranks.svg",
        "broadcast-4-ranks.svg",
        "faults.svg",
        "resnet50-step.svg",
        "shares.svg",
        "training.svg",
    ]
    curves = drawn[0]["allreduce-2-ranks.svg"]
    words_inside = {(part.text or "").strip() for part in ElementTree.fromstring(curves).iter()}
    assert {"allreduce, 2 ranks", "ours (torch)", "openmpi", "ours, resident", "1 KB", "16 MB"} <= words_inside
    assert "mpich" not in words_inside and "date" not in curves
    shares = ElementTree.fromstring(drawn[0]["shares.svg"])
    words_inside = {(part.text or "").strip() for part in shares.iter()}
    assert {"2 ranks", "4 ranks", "allreduce", "1 KB", "1 MB"} <= words_inside


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import results_page, run_all, sys; sys.exit('matplotlib' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=results_page.ROOT / "benchmarks", check=False).returncode == 0
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [("nonsense", "is no JSON"), ("[]", "is no report"), ('{"runs": []}', "is no report"), (None, "No such file")],
)
def test_what_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, why: str) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text)
    assert results_page.main(["--report", str(path), "--output", str(tmp_path / "out")]) == 1
    assert why in capsys.readouterr().err and not (tmp_path / "out").exists()
