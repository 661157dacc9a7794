"""A decode step: the next token of every row that is ready, or several where a draft foresees them. A pass for each decoder."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from plait.drafting.draft_tree import ROOT, DraftTree
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
    nodes: tuple[int, ...] = ()
    """Of the draft, those that came true."""


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
        trees = self.speculation.drafts(rows, data.shape[4], decoder.config.vocab_size)
        before = self.speculation.clock()
        if trees is None:
            runs = self._plain(decoder, all_rows, places, data)
        else:
            runs = self._verified(decoder, all_rows, places, trees, data)
        decode_s = self.speculation.clock() - before
        for index, row in enumerate(rows):
            row.num_drafted = 0 if trees is None else trees[index].depth
        self.speculation.measured(rows, trees, [run.tokens for run in runs], decode_s)
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
        trees: Sequence[DraftTree],
        data: Tensor,
    ) -> list[Run]:
        rows = [all_rows[place] for place in places]
        owners = [row.adapter for row, tree in zip(rows, trees, strict=True) for _ in range(1 + len(tree))]
        lora = self.mixer.for_decode(owners, [row.adapter for row in all_rows])
        draws, attention = draw_after_each(decoder, self.sampler, data, rows, places, trees, lora)
        runs = [accepted_run(tree, draw) for tree, draw in zip(trees, draws, strict=True)]
        for index, run in enumerate(runs):
            attention.adopt(index, run.nodes)
        return runs


def accepted_run(tree: DraftTree, draw: Draw) -> Run:
    """The drawn tokens along the tree up to the first that it does not have; `draw` has one after the row's last token, and one
    after each node. Pure.

    Each was drawn from the policy's own distribution at its position, given the ones before: that is plain decoding.
    """
    moves = {(parent, token): node for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True))}
    nodes = [ROOT]
    while (node := moves.get((nodes[-1], draw.tokens_R[nodes[-1] + 1]))) is not None:
        nodes.append(node)
    logprobs = tuple(draw.logprobs_R[node + 1] for node in nodes)
    num_fed = 1 + max(tree.num_first, len(nodes) - 1)
    if len(tree) and not all(map(math.isfinite, logprobs)):
        return Run((), (), num_fed)
    return Run(tuple(draw.tokens_R[node + 1] for node in nodes), logprobs, num_fed, tuple(nodes[1:]))
