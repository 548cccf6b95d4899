"""Bayesian optimisation over a `Space`: which point to try next, and which of those tried is expected to be best.

A Gaussian process of scikit-learn's, which is imported by `Search` and by nobody else; expected improvement. The same
scores always lead to the same points.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any, Final, Optional

from horovod._core.tuning.parameters import Parameters
from horovod._core.tuning.space import Space

_LENGTH: Final = 0.3  # how far, of a dimension, scores are alike
_LEAST_NOISE: Final = 1e-6  # what the arithmetic of the process needs


def library_problem() -> str:
    """Why there can be no search, and what to do; empty if it can. Imports nothing."""
    if importlib.util.find_spec("sklearn") is not None:
        return ""
    return (
        "scikit-learn, whose Gaussian process it needs, is not installed on rank 0; install it (pip install "
        "scikit-learn), or leave HOROVOD_AUTOTUNE (--autotune) out"
    )


class Search:
    """See the head of the file.

    Args:
        space: where to look.
        noise: variance of a score's noise, as a share of the variance of all scores.
    """

    def __init__(self, space: Space, noise: float) -> None:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern

        self._space = space
        self._first = space.first_points()
        self._tried: dict[Parameters, float] = {}
        kernel = Matern(length_scale=_LENGTH, nu=2.5)
        self._process: Any = GaussianProcessRegressor(
            kernel, alpha=max(noise, _LEAST_NOISE), optimizer=None, normalize_y=True
        )

    @property
    def tried(self) -> int:
        """How many points have been tried."""
        return len(self._tried)

    def tell(self, point: Parameters, score: float) -> None:
        """What a point has scored."""
        self._tried[point] = score

    def ask(self) -> Optional[Parameters]:
        """The point to try next; None: all have been tried."""
        for point in self._first:
            if point not in self._tried:
                return point
        left = self._space.untried(self._tried)
        if not left:
            return None
        best = max(self._expected(list(self._tried))[0])
        means, deviations = self._expected(left)
        gains = [_expected_improvement(mean, deviation, best) for mean, deviation in zip(means, deviations)]
        return left[gains.index(max(gains))]

    def best(self) -> Parameters:
        """Of the points that were tried, the one that is expected to score best."""
        tried = list(self._tried)
        means, _ = self._expected(tried)
        return tried[means.index(max(means))]

    def _expected(self, points: list[Parameters]) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of what the process expects at these points."""
        self._process.fit([self._space.coordinates(point) for point in self._tried], list(self._tried.values()))
        means, deviations = self._process.predict([self._space.coordinates(point) for point in points], return_std=True)
        return means.tolist(), deviations.tolist()


def _expected_improvement(mean: float, deviation: float, best: float) -> float:
    if deviation <= 0:
        return max(0.0, mean - best)
    z = (mean - best) / deviation
    return (mean - best) * 0.5 * (1 + math.erf(z / math.sqrt(2))) + deviation * math.exp(-z * z / 2) / math.sqrt(
        2 * math.pi
    )
