"""The token ids whose log-probabilities a sampling request asks for, dense or sparse, as JSON."""

from functools import cached_property
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from plait.server.wire.errors import WireError
from plait.server.wire.models.base import Request
from plait.server.wire.tensors import densify

MAX_TARGETS = 128
MAX_CELLS = 2**22
"""Of the dense form, which a sparse tensor takes in memory too."""
NO_TARGET = -1
"""An id in whose cell nothing is asked."""

Size = Annotated[int, Field(ge=0, lt=2**31)]
Index = Annotated[int, Field(ge=0, lt=2**63)]
TokenId = Annotated[int, Field(ge=NO_TARGET, lt=2**31)]


class TargetTensor(Request):
    """Dense, or CSR with both index lists."""

    data: list[TokenId]
    dtype: Literal["int64"]
    shape: Annotated[list[Size], Field(min_length=2, max_length=2)]
    sparse_crow_indices: list[Index] | None = None
    sparse_col_indices: list[Index] | None = None

    @cached_property
    def ids(self) -> npt.NDArray[np.int32]:
        """[rows, K], `NO_TARGET` where nothing is asked."""
        values = np.asarray(self.data, dtype=np.int64)
        if self.sparse_crow_indices is None:
            return values.reshape(self.shape).astype(np.int32)
        crow, col = np.asarray(self.sparse_crow_indices, dtype=np.int64), np.asarray(self.sparse_col_indices, dtype=np.int64)
        return densify(values, crow, col, self.shape, NO_TARGET).astype(np.int32)

    @model_validator(mode="after")
    def _adds_up(self) -> "TargetTensor":
        num_rows, num_columns = self.shape
        if num_columns > MAX_TARGETS:
            raise ValueError(f"at most {MAX_TARGETS} ids are scored at a position, not {num_columns}")
        if num_rows * num_columns > MAX_CELLS:
            raise ValueError(f"shape {self.shape} has more than {MAX_CELLS} cells")
        if (self.sparse_crow_indices is None) != (self.sparse_col_indices is None):
            raise ValueError("give both sparse_crow_indices and sparse_col_indices, or neither")
        if self.sparse_crow_indices is None and len(self.data) != num_rows * num_columns:
            raise ValueError(f"shape {self.shape} needs {num_rows * num_columns} ids, not {len(self.data)}")
        try:
            _ = self.ids
        except WireError as error:
            raise ValueError(str(error)) from error
        return self
