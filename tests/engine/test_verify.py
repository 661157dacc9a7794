"""Attention over the tokens of drafts, against attention over one sequence at a time."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plait.engine.drawing import accepted_run
from plait.engine.sampler import Draw
from plait.engine.verify import VerifyAttention
from plait.models.attention import PaddedAttention

LAYERS, KV_HEADS, GROUP, DIM, SLOT = 1, 2, 3, 16, 64

ROWS = st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1)
"""Slot -> (tokens in it, tokens fed)."""


@given(ROWS, st.integers(0, 99))
def test_each_row_meets_its_own_tokens(rows: dict[int, tuple[int, int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    places = sorted(rows)
    starts, counts = [rows[place][0] for place in places], [rows[place][1] for place in places]
    data = torch.zeros(LAYERS, 2, 7, KV_HEADS, SLOT, DIM, dtype=torch.float64)
    wanted, fed = [], []
    for place, start, count in zip(places, starts, counts, strict=True):
        heads = (GROUP * KV_HEADS, KV_HEADS, KV_HEADS)
        q, k, v = (torch.randn(start + count, h, DIM, generator=generator, dtype=torch.float64) for h in heads)
        plain = PaddedAttention(1, start + count, GROUP, torch.float64, torch.device("cpu"))
        wanted.append(plain(0, q, k, v)[start:])
        data[0, 0, place, :, :start], data[0, 1, place, :, :start] = k[:start].transpose(0, 1), v[:start].transpose(0, 1)
        data[0, :, place, :, start + count :] = 7.0  # what is hidden is not seen
        fed.append([part[start:] for part in (q, k, v)])
    attention = VerifyAttention(data, places, starts, counts, GROUP)
    q, k, v = (torch.cat(parts) for parts in zip(*fed, strict=True))
    torch.testing.assert_close(attention(0, q, k, v), torch.cat(wanted), atol=1e-6, rtol=1e-6)
    assert attention.positions_R.tolist() == [s + i for s, c in zip(starts, counts, strict=True) for i in range(c)]


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), min_size=9, max_size=9))
def test_a_run_ends_with_the_first_token_that_the_draft_lacks(draft: list[int], drawn: list[int]) -> None:
    drawn = drawn[: len(draft) + 1]
    run = accepted_run(draft, Draw(drawn, [-float(i) for i in range(len(drawn))]))
    count = len(run.tokens)
    assert run.tokens == tuple(drawn[:count])
    assert run.logprobs == tuple(-float(i) for i in range(count))
    assert drawn[: count - 1] == draft[: count - 1]
    assert count == len(draft) + 1 or drawn[count - 1] != draft[count - 1]
    assert run.num_fed == len(draft) + 1


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_a_drafted_run_with_what_is_not_a_number_is_not_taken(bad: float) -> None:
    assert accepted_run([1, 2], Draw([1, 3, 4], [0.0, bad, 0.0])).tokens == ()
    assert accepted_run([1, 2], Draw([1, 3, 4], [0.0, 0.0, bad])).tokens == (1, 3)
    assert accepted_run([], Draw([1], [bad])).tokens == (1,)
