"""What is drawn follows the distribution, never has probability zero, and is reported with its own log-probability."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.engine.sampler import BLOCK_TOKENS, Sampler, inverse_distribution, truncate
from plait.types.sampling import SamplingParams

SAMPLERS = pytest.mark.parametrize("use_gumbel", [False, True], ids=["inverse", "gumbel"])
SMALLEST, LARGEST = 2.0**-53, 1 - 2.0**-53
"""The ends of what `noise.uniform` gives."""


def random_logits(num_rows: int, vocabulary: int, scale: float = 2.0) -> torch.Tensor:
    return torch.randn(num_rows, vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * scale


def draw_many(use_gumbel: bool, logits_V: torch.Tensor, params: Callable[[int], SamplingParams], number: int) -> np.ndarray:
    tokens: list[int] = []
    for start in range(0, number, 2000):
        rows = range(start, start + 2000)
        draw = Sampler(use_gumbel).draw(logits_V.expand(2000, -1), [params(row) for row in rows], [row % 97 for row in rows])
        tokens += draw.tokens_R
    return np.bincount(tokens, minlength=len(logits_V))


def assert_follows(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square with rare tokens pooled; five standard deviations."""
    expected = probabilities * counts.sum()
    assert counts[probabilities == 0].sum() == 0
    common = expected >= 8
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    chi_square, freedom = float(((observed - wanted) ** 2 / wanted).sum()), len(wanted) - 1
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom) + 5


@SAMPLERS
@pytest.mark.parametrize("vocabulary", [3, 256, 300, 1000])
def test_draws_follow_the_distribution(use_gumbel: bool, vocabulary: int) -> None:
    logits = random_logits(1, vocabulary)[0]
    counts = draw_many(use_gumbel, logits, lambda row: SamplingParams(1, temperature=0.8, seed=row // 97), 20_000)
    assert_follows(counts, torch.softmax(logits.double() / 0.8, 0).numpy())


@SAMPLERS
@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, 0), (1.0, 5), (0.9, 12)])
def test_draws_follow_the_truncated_distribution(use_gumbel: bool, top_p: float, top_k: int) -> None:
    logits = random_logits(1, 40)[0]
    counts = draw_many(use_gumbel, logits, lambda row: SamplingParams(1, top_p=top_p, top_k=top_k, seed=row // 97), 4000)
    assert_follows(counts, slow_truncation(torch.softmax(logits.double(), 0).numpy(), top_p, top_k))


def slow_truncation(probabilities: np.ndarray, top_p: float, top_k: int) -> np.ndarray:
    """Token by token, likeliest first, until one of the limits is reached."""
    order = sorted(range(len(probabilities)), key=lambda token: (-probabilities[token], token))
    among = sum(probabilities[token] for token in order[: top_k or None])
    kept, mass = np.zeros_like(probabilities), 0.0
    for token in order[: top_k or None]:
        if mass / among >= top_p:
            break
        kept[token] = probabilities[token]
        mass += probabilities[token]
    return kept / kept.sum()


@given(st.integers(2, 600), st.sampled_from([0.3, 0.7, 0.95, 1.0]), st.sampled_from([0, 1, 3, 50]), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_truncation_renormalises(vocabulary: int, top_p: float, top_k: int, seed: int) -> None:
    logprobs = torch.log_softmax(torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed)) * 2, 0)
    kept = truncate(logprobs, top_p, top_k)
    wanted = slow_truncation(logprobs.double().exp().numpy(), top_p, top_k)
    assert torch.equal(kept > -math.inf, torch.from_numpy(wanted > 0))
    assert np.allclose(kept.double().exp().numpy(), wanted, atol=1e-6)


@SAMPLERS
def test_logprobs_are_of_the_distribution_drawn_from(use_gumbel: bool) -> None:
    logits = random_logits(6, 50)
    params = [
        SamplingParams(1, temperature=0.3), SamplingParams(1, temperature=0.7), SamplingParams(1),
        SamplingParams(1, temperature=0.7, top_p=0.8), SamplingParams(1, top_k=4),
        SamplingParams(1, temperature=0, top_p=0.5, top_k=1),
    ]  # fmt: skip
    draw = Sampler(use_gumbel).draw(logits, params, list(range(6)))
    for row, (token, logprob) in enumerate(zip(draw.tokens_R, draw.logprobs_R, strict=True)):
        full = torch.softmax(logits[row].double() / (params[row].temperature or 1), 0).numpy()
        is_greedy = params[row].temperature == 0
        wanted = full if is_greedy else slow_truncation(full, params[row].top_p, params[row].top_k)
        assert logprob == pytest.approx(math.log(wanted[token]), abs=1e-5)
    assert draw.tokens_R[5] == int(logits[5].argmax())


@SAMPLERS
def test_greedy_rows_among_others(use_gumbel: bool) -> None:
    logits = random_logits(4, 300)
    params = [SamplingParams(1, temperature=t, seed=9) for t in (0, 1.0, 0, 1.0)]
    draw = Sampler(use_gumbel).draw(logits, params, [1, 2, 3, 4])
    alone = [Sampler(use_gumbel).draw(logits[i : i + 1], params[i : i + 1], [i + 1]) for i in range(4)]
    assert draw.tokens_R == [d.tokens_R[0] for d in alone]
    assert draw.logprobs_R == [d.logprobs_R[0] for d in alone]
    assert draw.tokens_R[::2] == logits.argmax(-1).tolist()[::2]


@SAMPLERS
def test_seeds_and_positions_key_the_noise(use_gumbel: bool) -> None:
    logits = torch.zeros(1, 1000).expand(3, -1)
    sampler = Sampler(use_gumbel)
    same, other_position, other_seed = sampler.draw(logits, [SamplingParams(1, seed=s) for s in (5, 5, 6)], [3, 4, 3]).tokens_R
    assert len({same, other_position, other_seed}) == 3
    assert sampler.draw(logits[:1], [SamplingParams(1, seed=5)], [3]).tokens_R == [same]


@st.composite
def distributions(draw: st.DrawFn) -> torch.Tensor:
    """Sparse ones too, with long runs of zeros, blocks without any mass, tiny and huge weights."""
    vocabulary = draw(st.sampled_from([1, 5, 255, 256, 257, 600, 1024]))
    weights = torch.zeros(vocabulary)
    for token in draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=8)):
        weights[token] = draw(st.sampled_from([1e-38, 1e-7, 0.1, 1.0, 3.0]))
    return weights


@given(distributions(), st.one_of(st.sampled_from([SMALLEST, LARGEST, 0.5]), st.floats(SMALLEST, LARGEST)))
@settings(max_examples=300, deadline=None)
def test_never_a_token_of_probability_zero(weights: torch.Tensor, u: float) -> None:
    token = int(inverse_distribution(weights[None], np.array([u]))[0])
    assert 0 <= token < len(weights)
    assert weights[token] > 0


@given(distributions(), st.floats(SMALLEST, LARGEST))
@settings(max_examples=300, deadline=None)
def test_two_levels_find_what_one_finds(weights: torch.Tensor, u: float) -> None:
    """Up to the rounding of a block's sum."""
    ends = weights.double().cumsum(0)
    token = int(inverse_distribution(weights[None], np.array([u]))[0])
    before = float(ends[token]) - float(weights[token].double())
    slack = 1e-6 * float(ends[-1])
    assert before - slack <= u * float(ends[-1]) <= float(ends[token]) + slack


def test_extreme_u_finds_the_ends() -> None:
    weights = torch.zeros(1, 3 * BLOCK_TOKENS)
    weights[0, [5, 400, 700]] = torch.tensor([0.2, 0.5, 0.3])
    assert inverse_distribution(weights.expand(2, -1), np.array([SMALLEST, LARGEST])).tolist() == [5, 700]


@SAMPLERS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_not_numbers_say_so_and_spoil_no_other(use_gumbel: bool, temperature: float) -> None:
    logits = random_logits(4, 300)
    logits[1] = math.nan
    logits[2, 7] = math.inf
    params = [SamplingParams(1, temperature=temperature, seed=i) for i in range(4)]
    draw = Sampler(use_gumbel).draw(logits, params, [1, 2, 3, 4])
    assert [math.isfinite(logprob) for logprob in draw.logprobs_R] == [True, False, False, True]
    assert all(0 <= token < 300 for token in draw.tokens_R)
    assert draw.tokens_R[3] == Sampler(use_gumbel).draw(logits[3:], params[3:], [4]).tokens_R[0]
