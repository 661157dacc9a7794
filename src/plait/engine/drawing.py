"""A decode step: the next token of every row that is ready, or several where a draft foresees them. A pass for each decoder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from plait.engine.batch import DecodeBatch
from plait.engine.mixer import AdapterMixer
from plait.engine.row import Row, by_decoder
from plait.engine.sampler import Draw, Sampler
from plait.engine.speculation import Speculation
from plait.engine.verify import draw_after_each
from plait.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Run:
    """What a row draws in a step: one token or, if drafts came true, more.

    The slot holds `num_fed` new positions, of which those past the tokens are to be cleared. No token at all: the draft gave
    something that is not a number, so the row is to draw without one.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    num_fed: int = 1


class Drawing:
    def __init__(self, sampler: Sampler, mixer: AdapterMixer, speculation: Speculation | None) -> None:
        self.sampler, self.mixer, self.speculation = sampler, mixer, speculation
        self._batches: dict[Decoder, DecodeBatch] = {}

    def forget(self) -> None:
        """Rows have ended or moved."""
        self._batches = {}

    def draw(self, all_rows: Sequence[Row], places: Sequence[int], data: Tensor) -> list[Run]:
        """For the rows at `places`, which are in rising order; `data` has a slot for each of all rows."""
        runs: dict[int, Run] = {}
        for decoder, own in by_decoder(all_rows, places).items():
            runs |= zip(own, self._draw(decoder, all_rows, own, data), strict=True)
        return [runs[place] for place in places]

    def _draw(self, decoder: Decoder, all_rows: Sequence[Row], places: Sequence[int], data: Tensor) -> list[Run]:
        if self.speculation is None:
            return self._plain(decoder, all_rows, places, data)
        rows = [all_rows[place] for place in places]
        drafts = self.speculation.drafts(rows, data.shape[4], decoder.config.vocab_size)
        before = self.speculation.clock()
        has_drafts = any(drafts)
        runs = (
            self._verified(decoder, all_rows, places, drafts, data) if has_drafts else self._plain(decoder, all_rows, places, data)
        )
        decode_s = self.speculation.clock() - before
        for row, draft in zip(rows, drafts, strict=True):
            row.num_drafted = len(draft)
        self.speculation.measured(rows, [len(draft) for draft in drafts], [len(run.tokens) for run in runs], decode_s)
        return runs

    def _plain(self, decoder: Decoder, all_rows: Sequence[Row], places: Sequence[int], data: Tensor) -> list[Run]:
        draw = self._batch_of(decoder, all_rows, places).draw(decoder, self.sampler, data)
        return [Run((token,), (logprob,)) for token, logprob in zip(draw.tokens_R, draw.logprobs_R, strict=True)]

    def _batch_of(self, decoder: Decoder, all_rows: Sequence[Row], places: Sequence[int]) -> DecodeBatch:
        rows, batch = [all_rows[index] for index in places], self._batches.get(decoder)
        if batch is None or batch.rows != tuple(rows) or batch.places != tuple(places):
            lora = self.mixer.for_decode([row.adapter for row in rows], [row.adapter for row in all_rows])
            batch = self._batches[decoder] = DecodeBatch(rows, places, lora, decoder.device)
        return batch

    def _verified(
        self,
        decoder: Decoder,
        all_rows: Sequence[Row],
        places: Sequence[int],
        drafts: Sequence[tuple[int, ...]],
        data: Tensor,
    ) -> list[Run]:
        rows = [all_rows[place] for place in places]
        owners = [row.adapter for row, draft in zip(rows, drafts, strict=True) for _ in range(1 + len(draft))]
        lora = self.mixer.for_decode(owners, [row.adapter for row in all_rows])
        draws = draw_after_each(decoder, self.sampler, data, rows, places, drafts, lora)
        return [accepted_run(draft, draw) for draft, draw in zip(drafts, draws, strict=True)]


def accepted_run(draft: Sequence[int], draw: Draw) -> Run:
    """The drawn tokens up to the first that the draft does not have; `draw` has one more than the draft. Pure.

    Each was drawn from the policy's own distribution at its position, given the ones before: that is plain decoding.
    """
    count = 1
    for guess, token in zip(draft, draw.tokens_R, strict=False):
        if guess != token:
            break
        count += 1
    logprobs = tuple(draw.logprobs_R[:count])
    if draft and not all(map(math.isfinite, logprobs)):
        return Run((), (), len(draft) + 1)
    return Run(tuple(draw.tokens_R[:count]), logprobs, len(draft) + 1)
