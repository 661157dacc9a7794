"""How long a decode step takes on this machine, by rows and tokens per row: the profile that drafting is planned by."""

from collections.abc import Sequence

import torch

from plait.drafting.target_time import FIRST_DRAFT
from plait.engine.attention import DecodeAttention
from plait.engine.sampler import Sampler
from plait.engine.speculation import MAX_DRAFT_TOKENS, Clock
from plait.engine.verify import VerifyAttention
from plait.models.decoder import Decoder
from plait.types.sampling import SamplingParams

ROWS = (1, 4, 16)
"""More take the time that these make one expect."""
WIDTHS = (1, FIRST_DRAFT, 2, 4, 1 + MAX_DRAFT_TOKENS)
"""Tokens per row; the first is a step without drafts, the second one with a single draft token."""
NUM_KEYS = 256
"""Cached tokens of each row."""


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
    rounds = [
        {pair: _time_step(decoder, clock, sampler or Sampler(), parts[pair[0]], pair[1]) for pair in pairs}
        for _ in range(1 + repeats)
    ]
    return {pair: min(times[pair] for times in rounds[1:]) for pair in pairs}


def _time_step(decoder: Decoder, clock: Clock, sampler: Sampler, data: torch.Tensor, width: int) -> float:
    num_rows = data.shape[2]
    counts = [width] * num_rows if width != FIRST_DRAFT else [1] * (num_rows - 1) + [2]
    first = data.shape[4] - max(counts)
    begin = clock()
    attention = _attention(decoder, data, counts, first)
    positions = [first + step for count in counts for step in range(count)]
    positions_R = torch.tensor(positions, device=decoder.device)
    hidden_RE = decoder.forward(torch.zeros_like(positions_R), positions_R, attention)
    params = [SamplingParams(1, seed=row) for row, count in enumerate(counts) for _ in range(count)]
    sampler.draw(decoder.logits(hidden_RE), params, positions)
    return clock() - begin


def _attention(decoder: Decoder, data: torch.Tensor, counts: Sequence[int], first: int) -> DecodeAttention | VerifyAttention:
    """Row i, in slot i, feeds `counts[i]` tokens from position `first` on."""
    num_rows, config = len(counts), decoder.config
    if max(counts) > 1:
        group = config.num_heads // config.num_kv_heads
        return VerifyAttention(data, range(num_rows), [first] * num_rows, counts, group)
    rows_R, positions_R = (torch.tensor(values, device=decoder.device) for values in (range(num_rows), [first] * num_rows))
    return DecodeAttention(data, slice(0, num_rows), rows_R, positions_R, data.shape[4])
