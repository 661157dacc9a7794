"""Attention of draft tokens that lie beside the first path of their row's tree.

A path sees the slot of its row with its own tokens in place of the first path's: so it meets the keys that plain decoding would
meet, at the same places, and gives the same bits. (With all paths' keys in one row, and a mask, the sums of a softmax and of values
would be added up in another order.) They are put together for each layer in a copy of the slots concerned, so no path needs a slot.
The slots hold the first path alone; if another comes true, what was computed for it is put there afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plait.drafting.draft_tree import DraftTree


@dataclass(frozen=True, slots=True)
class Fed:
    """`count` tokens of the row in slot `place`, from position `start` on; they lie at `first` among all rows' tokens.

    `own`, for a branch: the tokens that the path to the last of them has and the first path does not, (token among all rows',
    position).
    """

    place: int
    first: int
    start: int
    count: int
    own: tuple[tuple[int, int], ...] = ()


def branches_of(tree: DraftTree, place: int, first: int, start: int) -> list[Fed]:
    """The parts of a row's tree beside its first path. `first`: where the row's fed tokens begin, of which the first, at position
    `start`, is the one before the tree. Pure."""
    begins = tree.starts
    found = []
    for node, end in zip(begins, [*begins[1:], len(tree)], strict=False):
        own = tuple((first + 1 + n, start + 1 + tree.depths[n]) for n in tree.path(end - 1) if n >= tree.num_first)
        found.append(Fed(place, first + 1 + node, start + 1 + tree.depths[node], end - node, own))
    return found


class BranchKeys:
    """The keys and values that first paths and branches see."""

    def __init__(self, rows: Sequence[Fed], num_keys: int, device: torch.device) -> None:
        self.num_keys = num_keys
        own = [(i, token, position) for i, fed in enumerate(rows) for token, position in fed.own]
        self.places_B = torch.tensor([fed.place for fed in rows], device=device)
        self.branches_N, self.tokens_N, self.positions_N = torch.tensor(own, device=device).T

    def __call__(self, cache: Tensor, k_RKD: Tensor, v_RKD: Tensor) -> tuple[Tensor, Tensor]:
        """[B, K, keys, D] each, in memory of their own."""
        keys, values = (part[:, :, : self.num_keys].index_select(0, self.places_B) for part in cache)
        keys[self.branches_N, :, self.positions_N] = k_RKD[self.tokens_N]
        values[self.branches_N, :, self.positions_N] = v_RKD[self.tokens_N]
        return keys, values


class FedTokens:
    """What each layer computed for the tokens fed, until it is known which of the branches' come true."""

    def __init__(self) -> None:
        self._layers: list[tuple[Tensor, Tensor]] = []

    def note(self, k_RKD: Tensor, v_RKD: Tensor) -> None:
        """The next layer's."""
        self._layers.append((k_RKD, v_RKD))

    def adopt(self, data: Tensor, place: int, tokens: Sequence[tuple[int, int]]) -> None:
        """Put tokens of branches, each with its position, into a slot of `data` [layers, 2, slots, K, tokens, D]."""
        chosen = torch.tensor([token for token, _ in tokens], device=data.device)
        positions = torch.tensor([position for _, position in tokens], device=data.device)
        for cache, parts in zip(data[:, :, place], self._layers, strict=True):
            for side, part_RKD in zip(cache, parts, strict=True):
                side[:, positions] = part_RKD[chosen].transpose(0, 1)
