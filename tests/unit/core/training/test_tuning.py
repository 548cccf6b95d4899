"""Autotune, the pure part: what may be tried, what a sample scores, what is kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from horovod._core.settings import Settings
from horovod._core.tuning import log, search
from horovod._core.tuning.parameters import Parameters
from horovod._core.tuning.sampling import Count, Sampler, part_ends, score
from horovod._core.tuning.search import Search
from horovod._core.tuning.space import Dimension, Space, free_dimensions
from horovod._core.tuning.tuner import Effort, Tuner

START = Parameters(128 << 20, 0.0)
TWO_HOSTS, ONE_HOST = (4, 2, 2), (4, 4, 1)


def names(settings: dict[str, Any], layout: tuple[int, int, int], source: str = "flag") -> list[str]:
    return [dimension.name for dimension in free_dimensions(Settings([(source, settings)]), layout)]


def two_hosts() -> Space:
    return Space(START, free_dimensions(Settings(), TWO_HOSTS))


def surface(point: Parameters) -> float:
    """Bytes per second of a made-up network: best at 8 MB, 1 ms, in two levels."""
    distance = abs(point.fusion_threshold_bytes.bit_length() - 24) / 10 + abs(point.cycle_time_ms - 1.0) / 10
    return 1e9 * (1 - distance) * (1.0 if point.hierarchical_allreduce else 0.6)


def tuned(effort: Effort, noise: float = 0.0, seed: int = 0) -> tuple[Tuner, list[tuple[Parameters, float]]]:
    """A whole search on the surface, with what was measured."""
    chance, tuner, seen = random.Random(seed), Tuner(two_hosts(), effort), []
    while not tuner.finished:
        found = surface(tuner.trying) * (1 + chance.gauss(0, noise))
        seen.append((tuner.trying, found))
        tuner.take(found)
    return tuner, seen


@pytest.mark.parametrize(
    ("given", "layout", "expected"),
    [
        ({}, ONE_HOST, ["fusion_threshold_bytes", "cycle_time_ms"]),
        ({}, TWO_HOSTS,
         ["fusion_threshold_bytes", "cycle_time_ms", "hierarchical_allreduce", "hierarchical_allgather"]),
        ({}, (2, 1, 2), ["fusion_threshold_bytes", "cycle_time_ms"]),
        ({}, (3, 2, 2), ["fusion_threshold_bytes", "cycle_time_ms"]),
        ({}, (1, 1, 1), []),
        ({"cycle_time_ms": 1.0}, ONE_HOST, ["fusion_threshold_bytes"]),
        ({"hierarchical_allreduce": False, "fusion_threshold_bytes": 0}, TWO_HOSTS,
         ["cycle_time_ms", "hierarchical_allgather"]),
        ({"torus_allreduce": True}, TWO_HOSTS, ["fusion_threshold_bytes", "cycle_time_ms", "hierarchical_allgather"]),
        ({"deterministic": True}, TWO_HOSTS, ["fusion_threshold_bytes", "cycle_time_ms"]),
        ({"cycle_time_ms": 0.0, "fusion_threshold_bytes": 1}, ONE_HOST, []),
    ],
)  # fmt: skip
def test_what_is_tried_is_what_nobody_has_set(given: dict[str, Any], layout: Any, expected: list[str]) -> None:
    for source in ("flag", "environment", "file job.yaml"):
        assert names(given, layout, source) == expected


def test_the_grid_holds_the_start_and_every_combination() -> None:
    space = two_hosts()
    assert space.start == replace(START, hierarchical_allreduce=True, hierarchical_allgather=True)
    assert space.start in space.points and len(set(space.points)) == len(space.points) == 12 * 7 * 2 * 2
    assert all(0 <= c <= 1 for point in space.points for c in space.coordinates(point))
    assert len({space.coordinates(point) for point in space.points}) == len(space.points)
    assert space.first_points()[0] == space.start and len(space.first_points()) == 4
    assert set(space.first_points()) <= set(space.points)


def test_a_start_between_the_values_is_one_of_them() -> None:
    space = Space(replace(START, cycle_time_ms=3.0), [Dimension("cycle_time_ms", (0.0, 5.0))])
    assert [space.coordinates(point) for point in space.points] == [(0.0,), (0.5,), (1.0,)]


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_search_comes_close_to_the_best_of_a_known_surface(noise: float) -> None:
    best = max(surface(point) for point in two_hosts().points)
    for seed in range(3):
        tuner, seen = tuned(Effort(3, 20, 0.1), noise, seed)
        assert surface(tuner.trying) > 0.9 * best > surface(tuner.start), (tuner.trying, seen)
        assert tuner.gain > 0.1 and tuner.score is not None


def test_samples_are_as_many_as_asked_for_and_the_run_off_takes_turns() -> None:
    tuner, seen = tuned(Effort(3, 20, 0.1))
    points = [point for point, _ in seen]
    assert tuner.samples == len(seen) == 3 + 20 + 6
    assert points[:4] == [tuner.start] * 4  # the warm-up, and the first of the search
    assert len(set(points[3:23])) == 20  # nothing twice
    assert points[23::2] == [tuner.trying] * 3 and points[24::2] == [tuner.start] * 3


def test_the_warm_up_does_not_count() -> None:
    tuner = Tuner(two_hosts(), Effort(2, 2, 0.0))
    scores = iter([1e12, 1e12, 5.0, 1.0])
    while not tuner.finished:
        tuner.take(next(scores))
    assert tuner.trying == tuner.start and tuner.samples == 4 and tuner.gain == 0


def test_where_nothing_is_faster_the_start_stays() -> None:
    tuner = Tuner(two_hosts(), Effort(0, 6, 0.0))
    while not tuner.finished:
        tuner.take(7.0)
    assert tuner.trying == tuner.start


@pytest.mark.parametrize("in_the_run_off", [3.0, 5.0])
def test_a_lucky_sample_loses_the_run_off(in_the_run_off: float) -> None:
    tuner, lucky = Tuner(two_hosts(), Effort(0, 4, 0.0)), None
    while not tuner.finished:
        first = tuner.samples == 2
        lucky = tuner.trying if first else lucky
        tuner.take(99.0 if first else in_the_run_off if tuner.trying == lucky else 5.0)
    assert tuner.samples == 10 and tuner.trying == tuner.start != lucky


@pytest.mark.parametrize(("runs", "kept"), [((9, 5, 8, 6, 7, 4), True), ((9, 5, 8, 6, 6, 4), False)])
def test_the_best_is_kept_if_all_its_runs_are_better(runs: tuple[float, ...], kept: bool) -> None:
    tuner, following = Tuner(two_hosts(), Effort(0, 2, 0.0)), iter((1.0, 2.0, *runs))
    while not tuner.finished:
        tuner.take(next(following))
    assert tuner.samples == 8 and (tuner.trying != tuner.start) is kept
    assert tuner.gain == pytest.approx(24 / 15 - 1 if kept else 0)


def test_no_samples_mean_no_search() -> None:
    tuner = Tuner(two_hosts(), Effort(3, 0, 0.8))
    assert tuner.finished and tuner.trying == tuner.start and tuner.best_so_far() == tuner.start


def test_a_small_grid_is_searched_once() -> None:
    tuner, seen = Tuner(Space(START, [Dimension("cycle_time_ms", (0.0, 1.0))]), Effort(0, 20, 0.0)), []
    while not tuner.finished:
        seen.append(tuner.trying.cycle_time_ms)
        tuner.take(2.0 if tuner.trying.cycle_time_ms else 1.0)
    assert sorted(seen[:2]) == [0.0, 1.0] and len(seen) == 8 and tuner.trying.cycle_time_ms == 1.0
    assert tuner.gain == pytest.approx(1.0)


def test_noise_decides_how_far_one_lucky_score_is_believed() -> None:
    # Nine neighbours rise towards the left; one far away was lucky once.
    values = tuple(float(value) for value in range(21))
    kept = []
    for noise in (0.0, 1.0):
        found = Search(Space(replace(START, cycle_time_ms=0.0), [Dimension("cycle_time_ms", values)]), noise)
        for value in values:
            found.tell(replace(START, cycle_time_ms=value), 12.0 if value == 15 else 10.0 - value / 3)
        kept.append(found.best().cycle_time_ms)
    assert kept[0] == 15 and kept[1] < 5


def test_the_same_scores_lead_to_the_same_points() -> None:
    assert tuned(Effort(1, 12, 0.3), 0.1, 7)[1] == tuned(Effort(1, 12, 0.3), 0.1, 7)[1]


def test_an_unfinished_search_tells_the_best_so_far() -> None:
    tuner = Tuner(two_hosts(), Effort(1, 9, 0.0))
    assert tuner.best_so_far() is None
    points = []
    for found in (9.0, 1.0, 5.0):
        points.append(tuner.trying)
        tuner.take(found)
    assert not tuner.finished and tuner.best_so_far() == points[2]


@pytest.mark.parametrize(
    ("steps", "ends"), [(1, [1]), (3, [1, 2, 3]), (5, [1, 2, 3, 4, 5]), (10, [2, 4, 6, 8, 10]), (12, [2, 4, 7, 9, 12])]
)
def test_a_sample_is_cut_into_parts(steps: int, ends: list[int]) -> None:
    assert part_ends(steps) == ends


def test_the_median_part_counts() -> None:
    counts = [Count(0, 0, 0.0), Count(1, 100, 1.0), Count(2, 200, 2.0), Count(3, 300, 60.0)]
    assert score(counts) == 100.0  # one checkpoint decides nothing
    assert score(counts[:1]) == 0.0


class Clockwork:
    """A scripted job: a step takes what the parameters in force make it take; a change holds `late` steps later."""

    def __init__(self, late: int) -> None:
        self.now, self.steps, self.bytes = 0.0, 0, 0
        self.asked = self.in_force = START
        self._late, self._left = late, 0
        self.waits: list[int] = []

    def change(self, to: Parameters) -> None:
        self.asked, self._left = to, self._late

    def await_steps(self, steps: int) -> Count:
        self.waits.append(steps)
        while self.steps < steps:
            if self._left == 0:
                self.in_force = self.asked
            self._left = max(0, self._left - 1)
            self.now += 1e9 / surface(self.in_force)
            self.steps, self.bytes = self.steps + 1, self.bytes + 1000
        return Count(self.steps, self.bytes, self.now)


@pytest.mark.parametrize("late", [0, 1, 3])
def test_no_step_is_measured_that_is_half_old(late: int) -> None:
    job = Clockwork(late)
    sampler = Sampler(job.await_steps, lambda: job.in_force, 2)  # two parts: their median hides no outlier
    for way in (True, False, True):
        point = replace(START, hierarchical_allreduce=way)
        job.change(point)
        assert sampler.sample(point) == pytest.approx(1000 / (1e9 / surface(point)))


def test_a_sample_has_as_many_steps_as_asked_for() -> None:
    for steps in (0, 1, 7, 50):
        job = Clockwork(0)
        Sampler(job.await_steps, lambda job=job: job.in_force, steps).sample(START)
        assert job.steps == 1 + max(1, steps)


def test_tuner_and_sampler_together_on_a_scripted_clock() -> None:
    job, tuner = Clockwork(2), Tuner(two_hosts(), Effort(1, 15, 0.1))
    sampler = Sampler(job.await_steps, lambda: job.in_force, 5)
    job.change(tuner.trying)
    while not tuner.finished:
        tuner.take(sampler.sample(tuner.trying))
        job.change(tuner.trying)
    assert surface(tuner.trying) > 0.9 * max(surface(point) for point in two_hosts().points)


def rows(points: Sequence[Parameters], **about: bool) -> list[str]:
    return [log.row(point, 1234567890.0, about.get("cache", True), about.get("ways", False)) for point in points]


def test_rows_have_the_columns_of_the_header() -> None:
    chosen = Parameters(1 << 20, 2.5, True, False, None)
    assert rows([chosen, START]) == ["1,0,0,1,2.5,1048576,1234.57", "0,0,0,1,0,134217728,1234.57"]
    assert rows([START], ways=True, cache=False) == ["1,1,0,0,0,134217728,1234.57"]
    assert len(log.HEADER.split(",")) == len(rows([START])[0].split(","))


def test_the_variables_of_what_was_tuned() -> None:
    found = log.variables(Parameters(1 << 20, 2.5, True), ("fusion_threshold_bytes", "cycle_time_ms"))
    assert found == "HOROVOD_FUSION_THRESHOLD=1048576 HOROVOD_CYCLE_TIME=2.5"
    assert log.variables(Parameters(0, 0.0, True), ("hierarchical_allreduce",)) == "HOROVOD_HIERARCHICAL_ALLREDUCE=1"


def test_a_missing_library_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert search.library_problem() == ""
    monkeypatch.setattr(search.importlib.util, "find_spec", lambda name: None)
    assert "pip install scikit-learn" in search.library_problem()
    assert "horovod[" not in search.library_problem()  # which pip would take for the package of PyPI
