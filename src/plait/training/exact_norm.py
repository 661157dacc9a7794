"""The norm of gradients to the same bit however they are cut into slices of rows, and in whatever order they come.

Rows are never cut, so their sums of squares do not depend on the slices; and these are summed exactly (`math.fsum`).
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

MAX_CONVERTED = 1 << 22
"""Values that are in float64 at one time."""


def exact_norm(gradients: Iterable[Tensor]) -> float:
    return norm_of_squares([row_squares(gradients)])


def norm_of_squares(parts: Iterable[np.ndarray]) -> float:
    return math.sqrt(math.fsum(value for part in parts for value in part.tolist()))


def row_squares(gradients: Iterable[Tensor]) -> np.ndarray:
    """Sum of squares of each row of each, float64; an element of a vector is a row."""
    return np.concatenate([_row_squares(gradient.detach()) for gradient in gradients])


def _row_squares(gradient: Tensor) -> np.ndarray:
    if not gradient.numel():
        return np.zeros(0)
    rows_RI = gradient.reshape(len(gradient), -1)
    parts = rows_RI.split(max(1, MAX_CONVERTED // rows_RI.shape[1]))
    return np.concatenate([torch.linalg.vecdot(part.double(), part.double()).cpu().numpy() for part in parts])
