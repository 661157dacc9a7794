"""Tensors of the wire and numpy arrays.

- A decoded tensor is dense and of dtype float32 or int64, whatever came (bfloat16 and int32 are widened).
- A sparse tensor (CSR, rows x columns) is filled with `pad` where nothing is listed. Indices out of range or out of order,
  sizes that do not add up and unknown types are a WireError: nothing is read past the end of anything.
- A dense size is only worked out here, never allocated: `num_cells` lets a caller bound it first.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.server.wire import tinker_wire_pb2 as wire
from plait.server.wire.errors import WireError

Array = npt.NDArray[Any]

MAX_SIZES_PRODUCT = 2**40
"""Of a shape's sizes, those of 0 left out: what numpy can surely address."""

_WIRE_DTYPES: dict[int, np.dtype] = {
    wire.DTYPE_FLOAT32: np.dtype("<f4"),
    wire.DTYPE_INT64: np.dtype("<i8"),
    wire.DTYPE_INT32: np.dtype("<i4"),
    wire.DTYPE_BFLOAT16: np.dtype("<u2"),
}


def num_cells(tensor: wire.Tensor) -> int:
    """Cells that the tensor has when dense, by its shape; a dense one without a shape is bounded by its bytes anyway."""
    return math.prod(tensor.shape) if all(size >= 0 for size in tensor.shape) else 0


def decode_tensor(tensor: wire.Tensor, pad: int = 0) -> Array:
    """The dense array, float32 or int64, in the tensor's shape; without a shape it has one dimension. Raises WireError."""
    shape = tuple(tensor.shape)
    if any(size < 0 for size in shape) or math.prod(size or 1 for size in shape) > MAX_SIZES_PRODUCT:
        raise WireError(f"shape {list(shape)} is impossible.")
    encoding = tensor.WhichOneof("encoding")
    if encoding == "sparse_csr":
        csr = tensor.sparse_csr
        crow, col = decode_array(csr.crow_indices, wire.DTYPE_INT64), decode_array(csr.col_indices, wire.DTYPE_INT64)
        return densify(decode_array(csr.values, tensor.dtype), crow, col, shape, pad)
    values = decode_array(tensor.dense, tensor.dtype)
    if not shape:
        return values
    if math.prod(shape) != len(values):
        raise WireError(f"shape {list(shape)} needs {math.prod(shape)} values, not the {len(values)} that came.")
    return values.reshape(shape)


def decode_array(data: bytes, dtype: int) -> Array:
    """Raw little-endian values, widened to float32 or int64. Raises WireError."""
    if dtype not in _WIRE_DTYPES:
        raise WireError(f"dtype {dtype} is unknown.", "Send FLOAT32 (1), INT64 (2), INT32 (3) or BFLOAT16 (4).")
    wire_dtype = _WIRE_DTYPES[dtype]
    if len(data) % wire_dtype.itemsize:
        raise WireError(f"{len(data)} bytes do not hold whole values of {wire_dtype.itemsize} bytes.")
    values = np.frombuffer(data, dtype=wire_dtype)
    if dtype == wire.DTYPE_BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32 if wire_dtype.kind == "f" else np.int64)


def densify(values: Array, crow: Array, col: Array, shape: Sequence[int], pad: int = 0) -> Array:
    """A CSR matrix as a dense one of `shape`, `pad` where nothing is listed. Raises WireError if the three do not fit."""
    if len(shape) != 2:
        raise WireError(f"a sparse tensor needs a shape of two sizes, not {list(shape)}.")
    num_rows, num_columns = shape
    if len(crow) != num_rows + 1 or crow[0] != 0 or crow[-1] != len(values) or (np.diff(crow) < 0).any():
        raise WireError(
            f"crow_indices must be {num_rows + 1} rising numbers from 0 to the {len(values)} values; {_summary(crow)} came."
        )
    if len(col) != len(values):
        raise WireError(f"{len(col)} col_indices came for {len(values)} values.")
    if len(col) and not (col.min() >= 0 and col.max() < num_columns):
        raise WireError(f"col_indices from {col.min()} to {col.max()} are outside of the {num_columns} columns.")
    rows = np.repeat(np.arange(num_rows), np.diff(crow))
    if len(np.unique(rows * max(num_columns, 1) + col)) != len(col):
        raise WireError("a cell is listed twice.")
    dense = np.full((num_rows, num_columns), pad, dtype=values.dtype)
    dense[rows, col] = values
    return dense


def encode_tensor(array: Array, crow: Sequence[int] | None = None, col: Sequence[int] | None = None) -> wire.Tensor:
    """A dense float32 or int32 tensor; with the indices of a CSR layout, a sparse one with the cells that they list."""
    dtype, wire_dtype = (wire.DTYPE_FLOAT32, "<f4") if array.dtype.kind == "f" else (wire.DTYPE_INT32, "<i4")
    tensor = wire.Tensor(dtype=dtype, shape=array.shape)
    if crow is None or col is None:
        tensor.dense = array.astype(wire_dtype).tobytes()
        return tensor
    rows = np.repeat(np.arange(len(array)), np.diff(crow))
    tensor.sparse_csr.values = array[rows, np.asarray(col, dtype=np.int64)].astype(wire_dtype).tobytes()
    tensor.sparse_csr.crow_indices = np.asarray(crow, dtype="<i8").tobytes()
    tensor.sparse_csr.col_indices = np.asarray(col, dtype="<i8").tobytes()
    return tensor


def _summary(indices: Array) -> str:
    return f"{len(indices)} of them" + (f", from {indices[0]} to {indices[-1]}," if len(indices) else "")
