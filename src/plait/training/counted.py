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
    """N pairs (row, target) in all, member by member, of which M differ: members of a group share the targets of their prefix."""

    members: tuple[int, ...]
    """Indices of the micro-batch's datums."""
    positions: tuple[tuple[int, ...], ...]
    """For each member its counted positions, ascending."""
    rows_M: Tensor
    targets_M: Tensor
    temperatures_M: Tensor
    pairs_N: Tensor | None
    """Which of the M each pair is; None: they are the same, in the same order."""

    @property
    def lengths(self) -> list[int]:
        """Counted positions of each member; they sum to N."""
        return [len(positions) for positions in self.positions]

    def spread(self, values_M: Tensor) -> Tensor:
        """[N] from [M]."""
        return values_M if self.pairs_N is None else values_M.index_select(0, self.pairs_N)


def counted_rows(batch: PackedBatch, datums: Sequence[Datum], every_position: bool, device: torch.device) -> CountedRows:
    """What of `batch` needs logits: what the loss reads, or every position."""
    rows_of = batch.rows()
    chosen = {m: range(len(datums[m].tokens)) if every_position else counted_positions(datums[m]) for m in batch.members}
    pairs = [
        (rows_of[m][t], datums[m].target_tokens[t], datums[m].temperature) for m in batch.members for t in chosen[m]
    ]  # fmt: skip
    different = {pair: index for index, pair in enumerate(dict.fromkeys(pairs))}
    return CountedRows(
        members=batch.members,
        positions=tuple(tuple(chosen[m]) for m in batch.members),
        rows_M=torch.tensor([row for row, _, _ in different], dtype=torch.long, device=device),
        targets_M=torch.tensor([target for _, target, _ in different], dtype=torch.long, device=device),
        temperatures_M=torch.tensor([temperature for _, _, temperature in different], dtype=torch.float32, device=device),
        pairs_N=None if len(different) == len(pairs) else torch.tensor([different[pair] for pair in pairs], device=device),
    )
