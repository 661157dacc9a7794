"""How long a decode step takes on this machine, by rows and tokens per row: the profile that drafting is planned by."""

from collections.abc import Sequence

import torch

from plait.drafting.draft_tree import NO_TREE, DraftTree, tree_of
from plait.drafting.target_time import FIRST_DRAFT, PATHS_WIDTH, SEVERAL_PATHS
from plait.engine.attention import DecodeAttention
from plait.engine.sampler import Sampler
from plait.engine.speculation import MAX_DRAFT_TOKENS, TAIL_ROWS, Clock
from plait.engine.verify import VerifyAttention
from plait.models.decoder import Decoder
from plait.models.kernels import ROW_MULTIPLE
from plait.types.sampling import SamplingParams

ROWS = (1, 4, 16)
"""More take the time that these make one expect."""
WIDTHS = (1, FIRST_DRAFT, 2, 4, 1 + MAX_DRAFT_TOKENS)
"""Tokens per row; the first is a step without drafts, the second one with a single draft token. Up to `TAIL_ROWS` rows a step with
two paths a row is measured as well."""
NUM_KEYS = 256
"""Cached tokens of each row."""


def token_step_of(decoder: Decoder) -> int:
    """The model computes a multiple of so many tokens: see `models.kernels`."""
    return ROW_MULTIPLE if decoder.device.type == "cpu" else 1


@torch.inference_mode()
def measure_step_times(
    decoder: Decoder, clock: Clock, max_rows: int, sampler: Sampler | None = None, num_keys: int = NUM_KEYS, repeats: int = 2
) -> dict[tuple[int, int], float]:
    """(rows, tokens per row) -> seconds, the best of `repeats` after one to warm up, with random keys and values and no adapter.

    Rows are `ROWS`, as far as `max_rows` goes. All pairs take turns, so that a busy spell of the machine does not fall on one.
    """
    config = decoder.config
    rows = sorted({min(count, max_rows) for count in ROWS})
    shape = (config.num_layers, 2, rows[-1], config.num_kv_heads, num_keys, config.head_dim)
    data = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(decoder.device, decoder.dtype)
    parts = {num_rows: data[:, :, :num_rows].contiguous() for num_rows in rows}
    pairs = [(num_rows, width) for num_rows in rows for width in WIDTHS]
    pairs += [(num_rows, SEVERAL_PATHS) for num_rows in rows if num_rows <= TAIL_ROWS]
    rounds = [
        {pair: _time_step(decoder, clock, sampler or Sampler(), parts[pair[0]], pair[1]) for pair in pairs}
        for _ in range(1 + repeats)
    ]
    return {pair: min(times[pair] for times in rounds[1:]) for pair in pairs}


def _time_step(decoder: Decoder, clock: Clock, sampler: Sampler, data: torch.Tensor, width: int) -> float:
    num_rows = data.shape[2]
    trees = _trees(num_rows, width)
    first = data.shape[4] - 1 - max(tree.depth for tree in trees)
    begin = clock()
    attention, positions = _attention(decoder, data, trees, first)
    positions_R = torch.tensor(positions, device=decoder.device)
    hidden_RE = decoder.forward(torch.zeros_like(positions_R), positions_R, attention)
    params = [SamplingParams(1, seed=row) for row, tree in enumerate(trees) for _ in range(1 + len(tree))]
    sampler.draw(decoder.logits(hidden_RE), params, positions)
    return clock() - begin


def _trees(num_rows: int, width: int) -> list[DraftTree]:
    """The draft of each row; which tokens makes no difference."""
    if width == FIRST_DRAFT:
        return [NO_TREE] * (num_rows - 1) + [tree_of([(0,)])]
    if width == SEVERAL_PATHS:
        return [tree_of([range(PATHS_WIDTH - 2), (1,)])] * num_rows
    return [tree_of([(0,) * (width - 1)])] * num_rows


def _attention(
    decoder: Decoder, data: torch.Tensor, trees: Sequence[DraftTree], first: int
) -> tuple[DecodeAttention | VerifyAttention, list[int]]:
    """Row i, in slot i, feeds a token at position `first` and its draft; the positions of all tokens."""
    num_rows, config = len(trees), decoder.config
    if any(trees):
        attention = VerifyAttention(data, range(num_rows), [first] * num_rows, trees, config.num_heads // config.num_kv_heads)
        return attention, attention.positions_R.tolist()
    rows_R, positions_R = (torch.tensor(values, device=decoder.device) for values in (range(num_rows), [first] * num_rows))
    return DecodeAttention(data, slice(0, num_rows), rows_R, positions_R, data.shape[4]), [first] * num_rows
