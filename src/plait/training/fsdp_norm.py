"""The norm of gradients that lie in slices, to the same bit however many slices there are."""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh


def global_norm(gradients: Mapping[str, Tensor], mesh: DeviceMesh) -> float:
    """Over the slices of all ranks along the mesh's last axis, which cuts first dimensions ("rows"). Collective.

    Rows are never cut, so their sums of squares do not depend on the slices; and these are summed exactly (`math.fsum`).
    """
    squares = torch.cat([_row_squares(gradient) for gradient in gradients.values()]).cpu().numpy()
    group = mesh.get_group(mesh.ndim - 1)
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, squares, group=group)
    return math.sqrt(math.fsum(chain.from_iterable(part.tolist() for part in parts)))


def _row_squares(gradient: Tensor) -> Tensor:
    """Sum of squares of each row, float64; an element of a vector is a row."""
    rows = gradient.detach().double().view(len(gradient), -1) if gradient.numel() else gradient.new_zeros(0, 1).double()
    return torch.linalg.vecdot(rows, rows)
