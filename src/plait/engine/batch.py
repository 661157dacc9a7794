"""The rows that draw a token together, with all that stays the same for as long as they are the same rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from plait.engine.attention import DecodeAttention, padded_keys
from plait.engine.row import Row
from plait.engine.sampler import Draw, Sampler
from plait.models.decoder import Decoder, LoraDelta


class DecodeBatch:
    """`places[i]` is the slot of `rows[i]`, in rising order."""

    def __init__(self, rows: Sequence[Row], places: Sequence[int], lora: LoraDelta | None, device: torch.device) -> None:
        self.rows, self.places, self.lora, self.device = tuple(rows), tuple(places), lora, device
        self.rows_R = torch.tensor(places, device=device)
        has_holes = places[-1] != len(places) - 1
        self.slots = self.rows_R if has_holes else slice(0, len(places))
        self.params_R = [row.chunk.sampling for row in rows]

    def draw(self, decoder: Decoder, sampler: Sampler, data: Tensor) -> Draw:
        """Feed each row's last token and draw the next."""
        positions = [row.num_computed for row in self.rows]
        positions_R = torch.tensor(positions, device=self.device)
        tokens_R = torch.tensor([row.tokens[-1] for row in self.rows], device=self.device)
        num_keys = padded_keys(max(positions) + 1, data.shape[4])
        attention = DecodeAttention(data, self.slots, self.rows_R, positions_R, num_keys)
        hidden_RE = decoder.forward(tokens_R, positions_R, attention, self.lora)
        return sampler.draw(decoder.logits(hidden_RE, self.lora), self.params_R, [position + 1 for position in positions])
