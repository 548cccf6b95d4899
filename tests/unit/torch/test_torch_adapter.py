"""The torch adapter's answers, and the row-major views of dense tensors."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from horovod._core.errors import InvalidArgumentError
from horovod._core.tensors import dtypes
from horovod._core.tensors.adapter import Adapter, Lent, ResultBlock
from horovod.torch.adapter import adapter
from horovod.torch.gradients.layout import dense_view


def test_it_is_an_adapter() -> None:
    checked: Adapter = adapter
    assert checked.framework == "torch" and checked.owns(torch.ones(1)) and not checked.owns([1.0])


def test_every_dtype_of_the_core_has_a_number() -> None:
    numbers = [adapter.dtype(torch.empty(0, dtype=getattr(torch, name))) for name in dtypes.NAMES]
    assert numbers == list(range(len(dtypes.NAMES)))
    assert adapter.dtype(torch.empty(0, dtype=torch.complex64)) == -1


def test_result_lives_as_long_as_a_view_of_it() -> None:
    freed: list[int] = []
    memory = torch.arange(6, dtype=torch.float32)
    block = ResultBlock(memory.data_ptr(), 24, dtypes.FLOAT32, (3, 2), Lent(7, freed.append))
    row = adapter.wrap(block, memory)[1]
    del block
    assert row.tolist() == [2.0, 3.0] and not freed
    del row
    assert freed == [7]


def test_splits_must_be_integers() -> None:
    assert adapter.values_of(torch.tensor([1, 2])) == [1, 2]
    for bad in (torch.ones(2), torch.ones(2, 2, dtype=torch.int32), torch.tensor([True])):
        with pytest.raises(InvalidArgumentError, match="Splits"):
            adapter.values_of(bad)


def test_contiguous_resolves_lazy_views_and_leaves_sparse_to_the_checks() -> None:
    assert adapter.contiguous(torch._neg_view(torch.ones(2))).tolist() == [-1.0, -1.0]
    sparse = torch.ones(2, 2).to_sparse()
    assert adapter.contiguous(sparse) is sparse and "sparse_coo" in adapter.unfit(sparse)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4, 5), (1, 3, 1, 5), (4, 1, 1, 1), (4, 4, 3, 3)])
def test_dense_view_is_contiguous_over_the_same_memory(shape: tuple[int, ...]) -> None:
    tensor = torch.rand(shape)
    forms = [tensor]
    if len(shape) == 4:
        forms += [tensor.to(memory_format=torch.channels_last), tensor.permute(2, 0, 3, 1)]
    for form in forms:
        view = dense_view(form)
        assert view is not None and view.is_contiguous() and view.data_ptr() == form.data_ptr()
        assert sorted(view.flatten().tolist()) == sorted(form.flatten().tolist())


def test_dense_views_of_equal_shapes_have_the_same_order() -> None:
    assert dense_view(torch.rand(4, 4).t()) is None
    assert dense_view(torch.rand(8, 3, 3, 3).to(memory_format=torch.channels_last)) is None
    for shape in itertools.product((1, 2, 3), repeat=4):
        orders: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for axes in itertools.permutations(range(4)):
            laid_out = torch.arange(math.prod(shape)).view([shape[axis] for axis in axes])
            view = dense_view(laid_out.permute([axes.index(axis) for axis in range(4)]))
            if view is not None:
                # What the view's elements are called, in the order in which they lie there.
                named = torch.arange(math.prod(shape)).view(shape).permute(axes).flatten().tolist()
                orders.setdefault(tuple(view.shape), set()).add(tuple(named))
        assert all(len(order) == 1 for order in orders.values()), shape


def test_dense_view_refuses_gaps_and_overlaps() -> None:
    assert dense_view(torch.rand(4, 6)[:, ::2]) is None
    assert dense_view(torch.rand(1).expand(3)) is None
    assert dense_view(torch.rand(2, 2).to_sparse()) is None
    assert dense_view(torch._neg_view(torch.rand(3))) is None


@pytest.mark.skipif(adapter.lane_terms is None, reason="The lane cannot read the tensors of this torch.")
def test_prototypes_are_good_for_new_tensors() -> None:
    assert adapter.lane_terms is not None
    prototype = adapter.lane_terms.prototype((2, 3), torch.zeros(4, dtype=torch.float16))
    assert prototype.untyped_storage().nbytes() == 0
    made = adapter.lane_terms.empty_like(prototype)
    assert made.shape == (2, 3) and made.dtype is torch.float16 and made.is_contiguous()
    assert made.untyped_storage().nbytes() == 12
