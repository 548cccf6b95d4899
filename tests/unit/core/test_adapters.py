"""The NumPy and byte adapters, and the memory of results."""

from __future__ import annotations

import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from horovod._core.errors import InvalidArgumentError
from horovod._core.tensors import byte_adapter, dtypes
from horovod._core.tensors.adapter import Adapter, Lent, ResultBlock, describe
from horovod._core.tensors.compression import Compressor, kind_of
from horovod.numpy.adapter import adapter
from horovod.numpy.compression import Compression


def block_of(array: Any, freed: list[int]) -> ResultBlock:
    number = adapter.dtype(array)
    address = array.ctypes.data if array.size else 0
    return ResultBlock(address, array.nbytes, number, array.shape, Lent(77, freed.append))


@pytest.mark.parametrize("number", range(len(dtypes.NAMES)))
def test_every_dtype(number: int) -> None:
    name = dtypes.NAMES[number]
    array = np.zeros(3, getattr(ml_dtypes, name, name))
    assert adapter.dtype(array) == number
    assert array.itemsize == dtypes.ITEM_BYTES[number]
    assert describe(adapter, array) == f"{name} [3]"
    assert adapter.cast(np.zeros(3), number).dtype == array.dtype


@pytest.mark.parametrize("dtype", [np.complex64, "S3", object, ">f4", "datetime64[s]", ml_dtypes.float8_e5m2fnuz])
def test_dtypes_that_nobody_moves(dtype: Any) -> None:
    assert adapter.dtype(np.zeros(3, dtype)) == -1


def test_results_are_freed_with_their_last_view() -> None:
    freed: list[int] = []
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = adapter.wrap(block_of(source, freed), source)
    assert result.ctypes.data == source.ctypes.data
    assert result.tolist() == source.tolist()
    view = result[1:, :2]
    del result
    gc.collect()
    assert freed == []
    del view
    gc.collect()
    assert freed == [77]


def test_results_without_elements_are_freed_at_once() -> None:
    freed: list[int] = []
    source = np.zeros((0, 4), np.int16)
    result = adapter.wrap(block_of(source, freed), source)
    gc.collect()
    assert (result.shape, result.dtype, freed) == ((0, 4), np.int16, [77])


def test_bytes_are_a_view_too() -> None:
    freed: list[int] = []
    source = np.arange(5, dtype=np.uint8)
    result = byte_adapter.adapter.wrap(block_of(source, freed), bytearray())
    assert bytes(result) == bytes(range(5))
    assert freed == []
    del result
    gc.collect()
    assert freed == [77]


def test_splits() -> None:
    assert adapter.values_of(np.array([1, 2], np.uint8)) == [1, 2]
    for wrong in (np.zeros((1, 2), int), np.zeros(2), np.zeros((), int)):
        with pytest.raises(InvalidArgumentError, match="one-dimensional"):
            adapter.values_of(wrong)


@pytest.mark.parametrize("dtype", [np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (1, 1), (7, 1, 2)])
def test_prototypes_are_good_for_new_arrays(shape: tuple[int, ...], dtype: Any) -> None:
    like = np.zeros((2, 2), dtype)
    prototype = adapter.lane_terms.prototype(shape, like)
    assert not prototype.flags.owndata
    made = adapter.lane_terms.empty_like(prototype)
    assert made.shape == shape and made.dtype == like.dtype and made.flags.c_contiguous and made.flags.owndata
    assert adapter.address(made) != adapter.address(prototype)


def test_scalars_stay_scalars() -> None:
    assert adapter.contiguous(np.float32(1).reshape(())).shape == ()
    assert adapter.is_contiguous(np.zeros(()))


def test_the_byte_adapter_has_all_methods() -> None:
    names = [name for name in vars(Adapter) if not name.startswith("_")]
    assert all(hasattr(byte_adapter.adapter, name) and hasattr(adapter, name) for name in names)


@pytest.mark.parametrize(
    ("dtype", "sent"),
    [
        (np.float32, np.float16),
        (np.float64, np.float16),
        (np.float16, np.float16),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        (np.int32, np.int32),
    ],
)
def test_compression_touches_wider_floats_only(dtype: Any, sent: Any) -> None:
    compressor = Compression.fp16
    array = np.array([1, 2], dtype)
    small, context = compressor.compress(array)
    assert small.dtype == sent
    assert (small is array) == (np.dtype(dtype) == sent)
    assert compressor.decompress(small, context).dtype == dtype


def test_compressors_can_be_shipped() -> None:
    import pickle

    for compressor in (Compression.none, Compression.fp16, Compression.bf16, Compression.fp16()):
        again = pickle.loads(pickle.dumps(compressor))
        assert again is compressor or type(again) is type(compressor)


def test_compressors_are_classes_that_users_derive_from() -> None:
    class Halved(Compression.fp16):  # type: ignore[name-defined,misc]
        @classmethod
        def compress(cls, tensor: Any) -> Any:
            return super().compress(tensor / 2)

    class Own(Compression):
        halved = Halved

    array = np.array([2.0], np.float32)
    for compressor in (Own.halved, Own.halved()):
        sent, context = compressor.compress(array)
        assert sent.dtype == np.float16 and compressor.decompress(sent, context).tolist() == [1.0]
    assert Own.fp16 is Compression.fp16 and issubclass(Own.fp16, Compressor) and issubclass(Own.none, Compressor)
    assert not isinstance(object(), Compressor)


def test_what_derives_from_no_compression_is_no_plain_compressor() -> None:
    class Doubled(Compression.none):  # type: ignore[name-defined,misc]
        pass

    for compressor in (Doubled, Doubled()):
        assert kind_of(compressor) is Doubled
    for compressor in (Compression.none, Compression.none()):
        assert kind_of(compressor) is Compression.none
