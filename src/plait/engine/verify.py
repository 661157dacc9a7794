"""One forward pass over the last token of some rows and the drafts of what follows; a draw at every position."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from plait.engine.attention import SlotWriter, padded_keys
from plait.engine.cache import KEY_STEP
from plait.engine.row import Row
from plait.engine.sampler import Draw, Sampler
from plait.models.attention import attend, causal_mask, fold_queries, unfold_queries
from plait.models.decoder import Decoder, LoraDelta

KEYS_COST, COPY_COST, GROUP_COST = 1, 4, 9
"""What attention costs for each row, for copying a row's keys and values together, and for one more call, where a query costs 1
(measured with SmolLM2's heads over 256 keys, in bfloat16 on one thread)."""


@dataclass(frozen=True, slots=True)
class _Fed:
    """`count` tokens of the row in slot `place`, from position `start` on; they lie at `first` among all rows' tokens."""

    place: int
    first: int
    start: int
    count: int


class VerifyAttention:
    """Row i, in slot `places[i]`, feeds `counts[i]` tokens from position `starts[i]` on; rows' tokens follow one another."""

    def __init__(self, data: Tensor, places: Sequence[int], starts: Sequence[int], counts: Sequence[int], group: int) -> None:
        device, firsts = data.device, [0, *accumulate(counts)][:-1]
        repeats_B = torch.tensor(counts, device=device)
        rows_R = torch.tensor(places, device=device).repeat_interleave(repeats_B)
        offset_B = torch.tensor(starts, device=device) - torch.tensor(firsts, device=device)
        self.positions_R = torch.arange(sum(counts), device=device) + offset_B.repeat_interleave(repeats_B)
        self.writer = SlotWriter(rows_R, self.positions_R, data.shape[3])
        self.data = data
        rows = [_Fed(*fed) for fed in zip(places, firsts, starts, counts, strict=True)]
        self.groups = [_Group(part, group, data) for part in _divided(rows)]

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        cache = self.data[layer]
        self.writer.write(cache, k_RKD, v_RKD)
        if len(self.groups) == 1 and self.groups[0].is_in_order:
            return self.groups[0].mix(cache, q_RHD)
        mixed = q_RHD.new_empty(q_RHD.shape[0], q_RHD.shape[1] * q_RHD.shape[2])
        for group in self.groups:
            group.mix_into(mixed, cache, q_RHD)
        return mixed


def _divided(rows: Sequence[_Fed]) -> list[list[_Fed]]:
    """Take all tokens together, queries padded to the most of a row; or, where that costs less, the first tokens of all rows
    together, and the drafts of the few that have any by themselves. Pure."""
    drafts = [_Fed(fed.place, fed.first + 1, fed.start + 1, fed.count - 1) for fed in rows if fed.count > 1]
    most = max(fed.count for fed in rows)
    together = len(rows) * (KEYS_COST + most)
    apart = len(rows) * (KEYS_COST + 1) + GROUP_COST + len(drafts) * (COPY_COST + KEYS_COST + most - 1)
    if together <= apart:
        return [list(rows)]
    return [[_Fed(fed.place, fed.first, fed.start, 1) for fed in rows], drafts]


class _Group:
    """B rows with up to L tokens each; a row's last query fills up."""

    def __init__(self, rows: Sequence[_Fed], group: int, data: Tensor) -> None:
        device, slot_tokens = data.device, data.shape[4]
        self.num_rows, self.length = len(rows), max(fed.count for fed in rows)
        self.num_keys = padded_keys(max(fed.start + fed.count for fed in rows), slot_tokens)
        if slot_tokens - self.num_keys <= KEY_STEP:  # copying a part would cost more
            self.num_keys = slot_tokens
        places = [fed.place for fed in rows]
        has_holes = places[-1] - places[0] != len(places) - 1
        self.rows = torch.tensor(places, device=device) if has_holes else slice(places[0], places[-1] + 1)
        firsts_B1, starts_B1, lasts_B1 = torch.tensor([(f.first, f.start, f.count - 1) for f in rows], device=device).T[:, :, None]
        steps_1L = torch.arange(self.length, device=device)[None]
        steps_BL = torch.minimum(steps_1L, lasts_B1)
        self.gather_T = (firsts_B1 + steps_BL).flatten()
        self.is_token_T = (steps_1L <= lasts_B1).flatten().nonzero()[:, 0]
        self.tokens_N = self.gather_T[self.is_token_T]
        self.is_in_order = all(fed.count == self.length for fed in rows) and self.length > 1
        self.mask = causal_mask(starts_B1 + steps_BL, self.num_keys, group, data.dtype)

    def mix(self, cache: Tensor, q_THD: Tensor) -> Tensor:
        """For padded queries."""
        keys, values = (part[self.rows, :, : self.num_keys].contiguous() for part in cache)
        queries = fold_queries(q_THD, self.num_rows, cache.shape[2])
        return unfold_queries(attend(queries, keys, values, self.mask, q_THD.shape[-1] ** -0.5), self.length)

    def mix_into(self, mixed_RQ: Tensor, cache: Tensor, q_RHD: Tensor) -> None:
        found = self.mix(cache, q_RHD.index_select(0, self.gather_T))
        mixed_RQ.index_copy_(0, self.tokens_N, found.index_select(0, self.is_token_T))


def draw_after_each(
    decoder: Decoder,
    sampler: Sampler,
    data: Tensor,
    rows: Sequence[Row],
    places: Sequence[int],
    drafts: Sequence[tuple[int, ...]],
    lora: LoraDelta | None,
) -> list[Draw]:
    """For each row: the token drawn after its last one, and after each of its draft's. `lora` is mixed for the tokens in order."""
    starts, counts = [row.num_computed for row in rows], [1 + len(draft) for draft in drafts]
    config = decoder.config
    attention = VerifyAttention(data, places, starts, counts, config.num_heads // config.num_kv_heads)
    fed = [token for row, draft in zip(rows, drafts, strict=True) for token in (row.tokens[-1], *draft)]
    hidden_RE = decoder.forward(attention.positions_R.new_tensor(fed), attention.positions_R, attention, lora)
    params_R = [row.chunk.sampling for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    positions_R = [start + 1 + step for start, count in zip(starts, counts, strict=True) for step in range(count)]
    draw = sampler.draw(decoder.logits(hidden_RE, lora), params_R, positions_R)
    ends = [0, *accumulate(counts)]
    return [Draw(draw.tokens_R[a:b], draw.logprobs_R[a:b]) for a, b in pairwise(ends)]
