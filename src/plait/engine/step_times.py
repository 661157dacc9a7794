"""How long a decode step takes on this machine, by rows and tokens per row: the profile that drafting is planned by."""

from collections.abc import Sequence

import torch

from plait.engine.attention import DecodeAttention
from plait.engine.sampler import Sampler
from plait.engine.speculation import MAX_DRAFT_TOKENS, Clock
from plait.engine.verify import VerifyAttention
from plait.models.decoder import Decoder
from plait.types.sampling import SamplingParams

ROWS = (1, 4, 16)
"""More take the time that these make one expect."""
WIDTHS = (1, 2, 4, 1 + MAX_DRAFT_TOKENS)
"""Tokens per row; the first is a step without drafts."""
NUM_KEYS = 256
"""Cached tokens of each row."""


@torch.inference_mode()
def measure_step_times(
    decoder: Decoder, clock: Clock, max_rows: int, sampler: Sampler | None = None, num_keys: int = NUM_KEYS, repeats: int = 2
) -> dict[tuple[int, int], float]:
    """(rows, tokens per row) -> seconds, the best of `repeats` after one to warm up, with random keys and values and no adapter.

    Rows are `ROWS`, as far as `max_rows` goes.
    """
    config = decoder.config
    rows = sorted({min(count, max_rows) for count in ROWS})
    shape = (config.num_layers, 2, rows[-1], config.num_kv_heads, num_keys, config.head_dim)
    data = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(decoder.device, decoder.dtype)
    found = {}
    for num_rows in rows:
        used = data[:, :, :num_rows].contiguous()
        for width in WIDTHS:
            times = [_time_step(decoder, clock, sampler or Sampler(), used, width) for _ in range(1 + repeats)]
            found[num_rows, width] = min(times[1:])
    return found


def _time_step(decoder: Decoder, clock: Clock, sampler: Sampler, data: torch.Tensor, width: int) -> float:
    num_rows, first = data.shape[2], data.shape[4] - width
    begin = clock()
    attention = _attention(decoder, data, range(num_rows), first, width)
    positions_R = torch.arange(first, first + width, device=decoder.device).repeat(num_rows)
    hidden_RE = decoder.forward(torch.zeros_like(positions_R), positions_R, attention)
    params = [SamplingParams(1, seed=row) for row in range(num_rows) for _ in range(width)]
    sampler.draw(decoder.logits(hidden_RE), params, positions_R.tolist())
    return clock() - begin


def _attention(
    decoder: Decoder, data: torch.Tensor, places: Sequence[int], first: int, width: int
) -> DecodeAttention | VerifyAttention:
    num_rows, config = len(places), decoder.config
    if width > 1:
        return VerifyAttention(data, places, [first] * num_rows, [width] * num_rows, config.num_heads // config.num_kv_heads)
    rows_R, positions_R = (torch.tensor(values, device=decoder.device) for values in (list(places), [first] * num_rows))
    return DecodeAttention(data, slice(0, num_rows), rows_R, positions_R, data.shape[4])
