"""Tensors: dense, sparse, and what is no tensor."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tinker.proto import tinker_public_pb2
from tinker.proto.request_conv import _tensor_data_to_proto
from tinker.proto.response_conv import _tensor_data_from_proto
from tinker.types import TensorData

from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.errors import WireError
from plait.server.wire.tensors import decode_array, decode_tensor, encode_tensor, num_cells

FLOATS = st.floats(width=32, allow_nan=False)
UNKNOWN_DTYPE: Any = 17
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


def ours(tensor: TensorData) -> wire.Tensor:
    """As it arrives from the SDK."""
    return wire.Tensor.FromString(_tensor_data_to_proto(tensor).SerializeToString())


def sparse(values: list[int], crow: list[int], col: list[int], shape: list[int]) -> wire.Tensor:
    as_bytes = [np.asarray(numbers, dtype=np.int64).tobytes() for numbers in (values, crow, col)]
    csr = wire.SparseCsr(values=as_bytes[0], crow_indices=as_bytes[1], col_indices=as_bytes[2])
    return wire.Tensor(sparse_csr=csr, dtype=wire.DTYPE_INT64, shape=shape)


@given(hnp.arrays(np.float32, SHAPES, elements=FLOATS) | hnp.arrays(np.int64, SHAPES))
def test_dense_tensors_of_the_sdk_are_read_exactly(array: np.ndarray) -> None:
    decoded = decode_tensor(ours(TensorData.from_numpy(array)))
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, array)


@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.sampled_from([0, 0, 0, 7, -3, 2**40])))
def test_sparse_tensors_of_the_sdk_are_filled(array: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = TensorData.from_torch_sparse(torch.from_numpy(array))
        np.testing.assert_array_equal(decode_tensor(ours(tensor)), tensor.to_numpy())
    np.testing.assert_array_equal(decode_tensor(ours(tensor)), array)


def test_unlisted_cells_take_the_pad() -> None:
    tensor = sparse([5, 0], [0, 1, 1, 2], [1, 0], [3, 2])
    np.testing.assert_array_equal(decode_tensor(tensor, pad=-1), [[-1, 5], [-1, -1], [0, -1]])


@given(st.data())
def test_a_sparse_layout_survives_the_way_back(data: st.DataObject) -> None:
    num_rows, num_columns = data.draw(st.tuples(st.integers(0, 5), st.integers(1, 5)))
    listed = data.draw(hnp.arrays(bool, (num_rows, num_columns)))
    values = data.draw(hnp.arrays(np.float32, (num_rows, num_columns), elements=FLOATS))
    crow, col = np.concatenate([[0], np.cumsum(listed.sum(1))]), np.nonzero(listed)[1]
    message = encode_tensor(values, crow.tolist(), col.tolist())
    theirs = _tensor_data_from_proto(tinker_public_pb2.Tensor.FromString(message.SerializeToString()))
    assert (theirs.shape, theirs.dtype) == ([num_rows, num_columns], "float32")
    assert theirs.sparse_crow_indices == crow.tolist()
    assert theirs.sparse_col_indices == col.tolist()
    assert theirs.data == values[listed].tolist()


def test_narrow_types_are_widened() -> None:
    third = np.float32(1 / 3)
    bfloat16 = (np.asarray([third, -2.0]).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    np.testing.assert_allclose(decode_array(bfloat16.tobytes(), wire.DTYPE_BFLOAT16), np.asarray([third, -2.0]), rtol=2**-7)
    assert decode_array(np.asarray([-1], dtype=np.int32).tobytes(), wire.DTYPE_INT32).dtype == np.int64


def test_without_a_shape_there_is_one_dimension() -> None:
    assert decode_tensor(wire.Tensor(dense=bytes(12), dtype=wire.DTYPE_FLOAT32)).shape == (3,)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (wire.Tensor(dense=bytes(4), dtype=wire.DTYPE_UNSPECIFIED), "dtype 0 is unknown"),
        (wire.Tensor(dense=bytes(4), dtype=UNKNOWN_DTYPE), "dtype 17 is unknown"),
        (wire.Tensor(dense=bytes(5), dtype=wire.DTYPE_FLOAT32), "5 bytes"),
        (wire.Tensor(dense=bytes(8), dtype=wire.DTYPE_FLOAT32, shape=[3]), r"shape \[3\] needs 3 values, not the 2"),
        (wire.Tensor(dense=bytes(8), dtype=wire.DTYPE_FLOAT32, shape=[-1, -2]), "impossible"),
        (wire.Tensor(dense=b"", dtype=wire.DTYPE_FLOAT32, shape=[0, 2**62, 2**62]), "impossible"),
        (sparse([1], [0, 1], [0], [1]), "two sizes"),
        (sparse([1], [0, 1], [2], [1, 2]), "outside of the 2 columns"),
        (sparse([1], [0, 1], [-1], [1, 2]), "outside of the 2 columns"),
        (sparse([1], [0, 2], [0], [1, 2]), "crow_indices"),
        (sparse([1, 2], [1, 2], [0, 1], [1, 2]), "crow_indices"),
        (sparse([1, 2], [0, 2, 1, 2], [0, 1], [3, 2]), "crow_indices"),
        (sparse([1], [], [0], [0, 2]), "crow_indices"),
        (sparse([1, 2], [0, 2], [0], [1, 2]), "1 col_indices came for 2 values"),
        (sparse([1, 2], [0, 2], [1, 1], [1, 2]), "listed twice"),
    ],
)
def test_what_does_not_add_up_is_refused(tensor: wire.Tensor, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_tensor(tensor)


@given(st.binary(max_size=40), st.integers(-1, 6), st.lists(st.integers(-3, 2**62), max_size=3))
def test_any_bytes_give_a_tensor_or_a_wire_error(data: bytes, dtype: Any, shape: list[int]) -> None:
    csr = wire.SparseCsr(values=data[:16], crow_indices=data[8:32], col_indices=data[:16])
    for tensor in (wire.Tensor(dense=data, dtype=dtype, shape=shape), wire.Tensor(sparse_csr=csr, dtype=dtype, shape=shape)):
        if tensor.HasField("sparse_csr") and num_cells(tensor) > 2**20:
            continue
        try:
            assert decode_tensor(tensor).dtype in (np.float32, np.int64)
        except WireError:
            continue
