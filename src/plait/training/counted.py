"""The rows of a micro-batch whose logits are needed, as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.training.datums import counted_positions
from plait.training.packing import PackedBatch
from plait.types.datum import Datum


@dataclass(frozen=True, slots=True)
class CountedRows:
    """N (row, target) pairs, member by member; a row of a shared prefix may occur with several targets."""

    members: tuple[int, ...]
    """Indices of the micro-batch's datums."""
    positions: tuple[tuple[int, ...], ...]
    """For each member its counted positions, ascending."""
    rows_N: Tensor
    targets_N: Tensor
    temperatures_N: Tensor

    @property
    def lengths(self) -> list[int]:
        """Counted positions of each member; they sum to N."""
        return [len(positions) for positions in self.positions]


def counted_rows(batch: PackedBatch, datums: Sequence[Datum], every_position: bool, device: torch.device) -> CountedRows:
    """What of `batch` needs logits: what the loss reads, or every position."""
    rows_of = batch.rows()
    chosen = {m: range(len(datums[m].tokens)) if every_position else counted_positions(datums[m]) for m in batch.members}
    pairs = [(m, t) for m in batch.members for t in chosen[m]]
    return CountedRows(
        members=batch.members,
        positions=tuple(tuple(chosen[m]) for m in batch.members),
        rows_N=torch.tensor([rows_of[m][t] for m, t in pairs], dtype=torch.long, device=device),
        targets_N=torch.tensor([datums[m].target_tokens[t] for m, t in pairs], dtype=torch.long, device=device),
        temperatures_N=torch.tensor([datums[m].temperature for m, _ in pairs], dtype=torch.float32, device=device),
    )
