"""One forward pass over the last token of some rows and the drafts of what follows; a draw at every position.

A row feeds its last token, its draft's first path, and then what is beside that path (`branches`). Tokens that paths have in common
are fed once.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from plait.drafting.draft_tree import DraftTree
from plait.engine.attention import SlotWriter, padded_keys
from plait.engine.branches import BranchKeys, Fed, FedTokens, branches_of
from plait.engine.cache import KEY_STEP
from plait.engine.row import Row
from plait.engine.sampler import Draw, Sampler
from plait.models.attention import attend, causal_mask, fold_queries, unfold_queries
from plait.models.decoder import Decoder, LoraDelta

KEYS_COST, COPY_COST, GROUP_COST = 1, 4, 9
"""What attention costs for each row, for copying a row's keys and values together, and for one more call, where a query costs 1
(measured with SmolLM2's heads over 256 keys, in bfloat16 on one thread)."""


class VerifyAttention:
    """Row i, in slot `places[i]`, feeds a token at position `starts[i]` and the draft `trees[i]` of what follows; rows' tokens
    follow one another."""

    def __init__(self, data: Tensor, places: Sequence[int], starts: Sequence[int], trees: Sequence[DraftTree], group: int) -> None:
        self.data, self.trees, self.places = data, trees, places
        self.firsts = [0, *accumulate(1 + len(tree) for tree in trees)][:-1]
        device = data.device
        positions = [start + 1 + d for start, tree in zip(starts, trees, strict=True) for d in (-1, *tree.depths)]
        self.positions_R = torch.tensor(positions, device=device)
        own = list(zip(places, self.firsts, starts, trees, strict=True))
        rows = [Fed(place, first, start, 1 + tree.num_first) for place, first, start, tree in own]
        branches = [branch for place, first, start, tree in own for branch in branches_of(tree, place, first, start)]
        self.fed_tokens: FedTokens | None = None
        self._lie_in_slots_N: Tensor | None = None
        self.groups: Sequence[_Group]
        if branches:
            self.groups, self.fed_tokens = [_BranchGroup([*rows, *branches], group, data)], FedTokens()
            self._lie_in_slots_N = torch.tensor([fed.first + i for fed in rows for i in range(fed.count)], device=device)
        else:
            self.groups = [_Group(part, group, data) for part in _divided(rows)]
        slots = torch.tensor(places, device=device).repeat_interleave(torch.tensor([fed.count for fed in rows], device=device))
        self.writer = SlotWriter(slots, self._in_slots(self.positions_R), data.shape[3])

    def _in_slots(self, values_R: Tensor) -> Tensor:
        """Of the tokens that slots hold: of all but those of branches."""
        return values_R if self._lie_in_slots_N is None else values_R.index_select(0, self._lie_in_slots_N)

    def __call__(self, layer: int, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        cache = self.data[layer]
        self.writer.write(cache, self._in_slots(k_RKD), self._in_slots(v_RKD))
        if self.fed_tokens is not None:
            self.fed_tokens.note(k_RKD, v_RKD)
        if len(self.groups) == 1 and self.groups[0].is_in_order:
            return self.groups[0].mix(cache, q_RHD, k_RKD, v_RKD)
        mixed = q_RHD.new_empty(q_RHD.shape[0], q_RHD.shape[1] * q_RHD.shape[2])
        for group in self.groups:
            group.mix_into(mixed, cache, q_RHD, k_RKD, v_RKD)
        return mixed

    def adopt(self, row: int, nodes: Sequence[int]) -> None:
        """Row `row` goes on along these nodes of its tree: its slot is to hold them."""
        tree, start = self.trees[row], int(self.positions_R[self.firsts[row]])
        beside = [(self.firsts[row] + 1 + node, start + 1 + tree.depths[node]) for node in nodes if node >= tree.num_first]
        if beside and self.fed_tokens is not None:
            self.fed_tokens.adopt(self.data, self.places[row], beside)


def _divided(rows: Sequence[Fed]) -> list[list[Fed]]:
    """Take all tokens together, queries padded to the most of a row; or, where that costs less, the first tokens of all rows
    together, and the drafts of the few that have any by themselves. Pure."""
    drafts = [Fed(fed.place, fed.first + 1, fed.start + 1, fed.count - 1) for fed in rows if fed.count > 1]
    most = max(fed.count for fed in rows)
    together = len(rows) * (KEYS_COST + most)
    apart = len(rows) * (KEYS_COST + 1) + GROUP_COST + len(drafts) * (COPY_COST + KEYS_COST + most - 1)
    if together <= apart:
        return [list(rows)]
    return [[Fed(fed.place, fed.first, fed.start, 1) for fed in rows], drafts]


class _Group:
    """B rows with up to L tokens each; a row's last query fills up."""

    def __init__(self, rows: Sequence[Fed], group: int, data: Tensor) -> None:
        device, slot_tokens = data.device, data.shape[4]
        self.num_rows, self.length = len(rows), max(fed.count for fed in rows)
        self.num_keys = padded_keys(max(fed.start + fed.count for fed in rows), slot_tokens)
        if slot_tokens - self.num_keys <= KEY_STEP:  # copying a part would cost more
            self.num_keys = slot_tokens
        places = [fed.place for fed in rows]
        is_run = places == [*range(places[0], places[0] + len(places))]
        self.rows = slice(places[0], places[-1] + 1) if is_run else torch.tensor(places, device=device)
        firsts_B1, starts_B1, lasts_B1 = torch.tensor([(f.first, f.start, f.count - 1) for f in rows], device=device).T[:, :, None]
        steps_1L = torch.arange(self.length, device=device)[None]
        steps_BL = torch.minimum(steps_1L, lasts_B1)
        self.gather_T = (firsts_B1 + steps_BL).flatten()
        self.is_token_T = (steps_1L <= lasts_B1).flatten().nonzero()[:, 0]
        self.tokens_N = self.gather_T[self.is_token_T]
        self.is_in_order = all(fed.count == self.length for fed in rows) and self.length > 1
        self.mask = causal_mask(starts_B1 + steps_BL, self.num_keys, group, data.dtype)

    def keys_values(self, cache: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> tuple[Tensor, Tensor]:
        """What the rows see, [B, K, keys, D] each."""
        keys, values = (part[self.rows, :, : self.num_keys].contiguous() for part in cache)
        return keys, values

    def mix(self, cache: Tensor, q_THD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> Tensor:
        """For padded queries."""
        keys, values = self.keys_values(cache, k_RKD, v_RKD)
        queries = fold_queries(q_THD, self.num_rows, cache.shape[2])
        return unfold_queries(attend(queries, keys, values, self.mask, q_THD.shape[-1] ** -0.5), self.length)

    def mix_into(self, mixed_RQ: Tensor, cache: Tensor, q_RHD: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> None:
        found = self.mix(cache, q_RHD.index_select(0, self.gather_T), k_RKD, v_RKD)
        mixed_RQ.index_copy_(0, self.tokens_N, found.index_select(0, self.is_token_T))


class _BranchGroup(_Group):
    """The same for rows with branches, each of which counts as a row: a few of them have one slot. A second call would cost more
    than the queries that are filled up."""

    def __init__(self, rows: Sequence[Fed], group: int, data: Tensor) -> None:
        super().__init__(rows, group, data)
        self.is_in_order = False
        self._keys = BranchKeys(rows, self.num_keys, data.device)

    def keys_values(self, cache: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> tuple[Tensor, Tensor]:
        return self._keys(cache, k_RKD, v_RKD)


def draw_after_each(
    decoder: Decoder,
    sampler: Sampler,
    data: Tensor,
    rows: Sequence[Row],
    places: Sequence[int],
    trees: Sequence[DraftTree],
    lora: LoraDelta | None,
) -> tuple[list[Draw], VerifyAttention]:
    """For each row: the token drawn after its last one, and after each of its tree's. `lora` is mixed for the tokens in order.

    The attention tells slots which path they are to hold.
    """
    starts, counts = [row.num_computed for row in rows], [1 + len(tree) for tree in trees]
    config = decoder.config
    attention = VerifyAttention(data, places, starts, trees, config.num_heads // config.num_kv_heads)
    fed = [token for row, tree in zip(rows, trees, strict=True) for token in (row.tokens[-1], *tree.tokens)]
    positions_R = attention.positions_R
    hidden_RE = decoder.forward(positions_R.new_tensor(fed), positions_R, attention, lora)
    params_R = [row.chunk.sampling for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    draw = sampler.draw(decoder.logits(hidden_RE, lora), params_R, (positions_R + 1).tolist())
    ends = [0, *accumulate(counts)]
    return [Draw(draw.tokens_R[a:b], draw.logprobs_R[a:b]) for a, b in pairwise(ends)], attention
