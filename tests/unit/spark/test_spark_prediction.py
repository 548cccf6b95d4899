"""Of which type the columns of a model's outputs are."""

from __future__ import annotations

import pytest

from horovod.spark.common.prediction import kind_of


@pytest.mark.parametrize(
    "label, shape, kind",
    [
        ("float", [], "float"),
        ("int", [1], "int"),
        ("int", [10], "vector"),
        ("double", [2, 2], "vector"),
        ("vector", [1], "vector"),
        ("array<float>", [4], "array<float>"),
        ("array<array<int>>", [2, 2], "array<array<int>>"),
        ("boolean", [], "double"),
        ("string", [1], "double"),
        ("uint8", [], "double"),
        ("array<string>", [3], "array<double>"),
    ],
)
def test_an_output_has_the_type_of_its_label_if_that_is_a_number(label: str, shape: list[int], kind: str) -> None:
    assert kind_of(label, shape) == kind
