"""Many adapters of any ranks and target modules in one batch.

Each adapter is fused once to the decoder's sites. In a batch, adapters with a few rows each are multiplied together, their rows
padded to one number ("batched"); an adapter with many more rows than the others is taken alone ("segments"). Both give a row the
same bits, and the same as the adapter alone (`SingleLora`, the trainer's form): padding adds rows, columns and trailing zeros,
none of which `models.kernels.grouped_product` lets into a row's sums.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from plait.lora.fused import FusedAdapter as FusedAdapter
from plait.lora.fused import module_output_sizes as module_output_sizes
from plait.lora.site import add_delta, add_delta_
from plait.lora.stack import SiteStack, StackedAdapters
from plait.models.decoder import LoraDelta
from plait.models.kernels import grouped_product

SEGMENT_COST_ROWS = 150
"""Taking an adapter alone costs as much as so many more rows in a padded product (SmolLM2, rank 16, one thread: 10 to 20 ms)."""

MIN_GROUP_ROWS = 2
"""A product of a single row takes other kernels, with other rounding."""

GROUP_STEP = 16
"""Prompts bring any number of rows, and oneDNN makes kernels for each number it meets, which takes time and memory."""


class SingleLora:
    """All rows belong to one adapter: the trainer's case."""

    def __init__(self, adapter: FusedAdapter) -> None:
        self.adapter = adapter

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        fused = self.adapter.sites.get((site, layer))
        if fused is None:
            return y_RO
        return add_delta(x_RI, y_RO, fused) if torch.is_grad_enabled() else add_delta_(x_RI, y_RO, fused)


class SegmentLora:
    """Rows taken adapter by adapter, in any order; `adapter_R[r]` is row r's adapter (-1: the base alone). Inference only."""

    def __init__(self, adapters: Sequence[FusedAdapter], adapter_R: Tensor) -> None:
        indices = [(adapter_R == i).nonzero()[:, 0] for i in range(len(adapters))]
        self.segments = [(adapter, _as_slice(rows)) for adapter, rows in zip(adapters, indices, strict=True) if len(rows)]

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        for adapter, rows in self.segments:
            fused = adapter.sites.get((site, layer))
            if fused is None:
                continue
            part = add_delta_(x_RI[rows], y_RO[rows], fused)
            if isinstance(rows, Tensor):
                y_RO.index_copy_(0, rows, part)
        return y_RO


def _as_slice(rows_R: Tensor) -> slice | Tensor:
    """A slice where rows have no holes: it copies nothing."""
    first, last = int(rows_R[0]), int(rows_R[-1])
    return slice(first, last + 1) if last - first == len(rows_R) - 1 else rows_R


class BatchedLora:
    """Rows of a few adapters multiplied together, for a batch whose row r belongs to adapter `adapter_R[r]` of the stack (-1: the
    base alone). Adapters with many rows are taken alone. Inference only."""

    def __init__(self, stacked: StackedAdapters, adapter_R: Tensor) -> None:
        self.stacked = stacked
        owners = adapter_R.tolist()
        counts = Counter(owner for owner in owners if owner >= 0)
        alone = taken_alone(counts, len(stacked.adapters))
        self.segments = SegmentLora(
            stacked.adapters, torch.tensor([o if o in alone else -1 for o in owners], device=adapter_R.device)
        )
        together = [-1 if owner in alone else owner for owner in owners]
        self.plans = {site: _Plan(stack, together, adapter_R.device) for site, stack in stacked.sites.items()}

    def __call__(self, site: str, layer: int, x_RI: Tensor, y_RO: Tensor) -> Tensor:
        plan = self.plans.get(site)
        if plan is not None and plan.num_rows:
            plan.add(x_RI, y_RO, *self.stacked.weights[site, layer])
        return self.segments(site, layer, x_RI, y_RO)


def taken_alone(counts: Mapping[int, int], num_stacked: int) -> set[int]:
    """The adapters that cost less alone than in a product padded to their number of rows. Pure."""
    by_count = sorted(counts, key=lambda owner: (-counts[owner], owner))
    costs = [
        num_stacked * max(MIN_GROUP_ROWS, counts[owner]) + sum(counts[other] + SEGMENT_COST_ROWS for other in by_count[:index])
        for index, owner in enumerate(by_count)
    ]
    costs.append(sum(counts[owner] + SEGMENT_COST_ROWS for owner in by_count))
    return set(by_count[: costs.index(min(costs))])


def _group_rows(num_rows: int) -> int:
    """Rows that each adapter is given where one has so many."""
    step = GROUP_STEP if num_rows > GROUP_STEP else 1
    return max(MIN_GROUP_ROWS, -(-num_rows // step) * step)


class _Plan:
    """Where rows go and come from at one site: N members, C rows each, M modules, P pieces of the output."""

    def __init__(self, stack: SiteStack, owners: Sequence[int], device: torch.device) -> None:
        place_of = {member: place for place, member in enumerate(stack.members)}
        rows = [row for row, owner in enumerate(owners) if owner in place_of]
        filled: Counter[int] = Counter()
        places: list[tuple[int, int]] = []
        for row in rows:
            member = place_of[owners[row]]
            places.append((member, filled[member]))
            filled[member] += 1
        self.num_rows, self.is_all = len(rows), len(rows) == len(owners)
        self.shape = n, c = len(stack.members), _group_rows(max(filled.values(), default=0))
        modules, pieces = stack.num_modules, stack.piece_modules
        self.has_one_piece = pieces == (0,)
        gather = [0] * (n * c)  # rows that fill up are computed for nothing
        for row, (member, index) in zip(rows, places, strict=True):
            gather[member * c + index] = row
        pick = [(i * c + j) * modules + module for i in range(n) for module in pieces for j in range(c)]
        back = [(i * len(pieces) + piece) * c + j for i, j in places for piece in range(len(pieces))]
        self.is_in_order = self.is_all and gather == list(range(len(owners)))
        self.rows_R, self.gather_NC, self.pick_NPC, self.back_RP = (
            torch.tensor(values, device=device, dtype=torch.long) for values in (rows, gather, pick, back)
        )

    def add(self, x_RI: Tensor, y_RO: Tensor, a_NIJ: Tensor, b_Prw: Tensor) -> None:
        """Adds each row's share to y, in place."""
        n, c = self.shape
        rank, width = b_Prw.shape[1:]
        x_NCI = (x_RI if self.is_in_order else x_RI.index_select(0, self.gather_NC)).reshape(n, c, -1)
        h = grouped_product(x_NCI, a_NIJ).view(-1, rank)
        h = h if self.has_one_piece else h.index_select(0, self.pick_NPC)
        delta = grouped_product(h.view(-1, c, rank), b_Prw)
        if self.is_in_order:
            y_RO.view(n, c, -1, width).add_(delta.view(n, -1, c, width).transpose(1, 2))
            return
        delta = delta.view(-1, width).index_select(0, self.back_RP).view(self.num_rows, -1)
        if self.is_all:
            y_RO.add_(delta)
        else:
            y_RO.index_add_(0, self.rows_R, delta)


def mix_adapters(stacked: StackedAdapters, adapter_R: Tensor) -> LoraDelta | None:
    """The form for a batch; None if no row has an adapter."""
    owners = set(adapter_R.tolist())
    if owners <= {-1}:
        return None
    if len(owners) == 1:
        return SingleLora(stacked.adapters[owners.pop()])
    return BatchedLora(stacked, adapter_R)
