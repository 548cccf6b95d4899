"""The benchmarks' pure parts: what is right, what is compared, what is said."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from contenders.library import buckets
from harness import report
from harness.contest import Entry
from harness.row import Check, Row, merged_checks
from ranks import networks, patterns, resnet50
from ranks.gate import Gate
from rows import upstream


def entry(label: str, kind: str, *seconds: float, void: str | None = None) -> Entry:
    return Entry(label, kind, [list(seconds)], void)


def test_resnet50_has_161_tensors_of_which_115_are_small() -> None:
    sizes = resnet50.gradient_sizes()
    assert (len(sizes), sum(sizes) * 4) == (161, 102_228_128)
    assert len(resnet50.gradient_sizes(small_only=True)) == 115


@pytest.mark.parametrize(
    ("name", "tensors", "parameters", "billions"),
    [("ResNet-50", 161, 25_557_032, 4.09), ("ResNet-101", 314, 44_549_160, 7.80), ("VGG-16", 32, 138_357_544, 15.47)]
    + [("Inception V3", 284, 23_834_568, 5.71)],
)
def test_networks_have_the_published_sizes(name: str, tensors: int, parameters: int, billions: float) -> None:
    made = networks.all_networks()[name]
    assert (len(made), sum(networks.gradient_sizes(made))) == (tensors, parameters)
    assert sum(tensor.multiplications for tensor in made) / 1e9 == pytest.approx(billions, abs=0.01)
    parts = networks.ready_parts(made)
    assert parts == sorted(parts) and parts[0] == 1 / 3 and parts[-1] == pytest.approx(1)


def test_resnet50_model_has_these_parameters() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed.")
    assert [p.numel() for p in resnet50.model().parameters()] == resnet50.parameter_sizes()


@pytest.mark.parametrize("operation", ["allreduce", "broadcast", "allgather", "alltoall", "reducescatter", "send"])
def test_expected_results_agree_with_their_constants(operation: str) -> None:
    for rank in range(2):
        whole = patterns.expected(operation, rank, 2, 7, 8)
        blocks = np.split(whole, len(patterns.constants(operation, rank, 2, 7)))
        base = patterns.positions(8) * (2 if operation in ("allreduce", "reducescatter") else 1)
        share = base[rank * 4 : rank * 4 + 4] if operation in ("alltoall", "reducescatter") else base
        for block, constant in zip(blocks, patterns.constants(operation, rank, 2, 7)):
            assert np.array_equal(block - constant, share)


def test_allreduce_of_two_ranks_is_their_sum() -> None:
    right = patterns.positions(5) * 2 + patterns.value(0, 3) + patterns.value(1, 3)
    assert np.array_equal(patterns.expected("allreduce", 1, 2, 3, 5), right)


def test_buckets_keep_order_and_limit() -> None:
    assert buckets([3, 3, 3, 10, 1], 6) == [[0, 1], [2], [3], [4]]


def test_a_void_peer_is_not_the_best() -> None:
    row = Row("r", [entry("ours", "ours", 2.0), entry("a", "peer", 1.0, void="WRONG"), entry("b", "peer", 4.0)])
    best = row.best_peer()
    assert best and best.label == "b"


@pytest.mark.parametrize(
    ("value", "limit", "at_least", "met"),
    [(1.0, 1.0, True, True), (0.9, 1.0, True, False), (6.0, 5.0, False, False), (math.nan, 5.0, False, None)],
)
def test_verdicts(value: float, limit: float, at_least: bool, met: bool | None) -> None:
    assert Check("t", value, limit, at_least).met is met


def test_targets_are_judged_by_the_median_of_the_runs() -> None:
    runs = [[Row("r", checks=[Check("t", value, 1.0, True)])] for value in (0.5, 1.5, 2.0)]
    ((check, values),) = merged_checks([run[0] for run in runs])
    assert check.met and values == [0.5, 1.5, 2.0]


def test_the_report_names_slow_missing_and_wrong() -> None:
    row = Row(
        "allreduce 4 B",
        [entry("ours", "ours", 2e-6), entry("a", "peer", 1e-6), entry("b", "peer", void="missing: no wheel")],
        [Check("<= 1 us", 2.0, 1.0, False, "us")],
    )
    text = report.markdown([[row]], report.About(["a setting"], ["a machine"], "2026-01-02", "abc"))
    assert "| allreduce 4 B | <= 1 us | 2 us | **MISSED** |" in text
    assert "- allreduce 4 B: 0.50 of the best peer's speed (1 pair, too few for an interval; a)" in text
    assert "| b | missing: no wheel | | |" in text


def test_upstream_is_its_ratio_to_open_mpi() -> None:
    assert upstream.allreduce_s(4, 1.8e-6) == pytest.approx(2 * 1071e-6)
    assert math.isnan(upstream.allreduce_s(5, 1.0))


def test_the_gate_opens_for_all_at_once(tmp_path: object) -> None:
    left: list[list[int]] = [[], []]

    def meet(rank: int) -> None:
        gate = Gate(f"{tmp_path}/gate", rank, 2, crowded=True)
        for _ in range(5):
            gate.pass_through()
            left[rank].append(gate._last_start)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert left[0] == left[1] == sorted(set(left[0])) and len(left[0]) == 5
