"""The norm of gradients that lie in slices on several ranks."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from plait.training.exact_norm import norm_of_squares, row_squares


def global_norm(gradients: Mapping[str, Tensor], mesh: DeviceMesh) -> float:
    """Over the slices of all ranks along the mesh's last axis, which cuts first dimensions. Collective."""
    group = mesh.get_group(mesh.ndim - 1)
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, row_squares(gradients.values()), group=group)
    return norm_of_squares(parts)
