"""What is drawn with drafts has the policy's distribution."""

import math
from collections.abc import Sequence

import pytest
import torch

from plait.engine.reference import ReferenceEngine
from plait.engine.sampler import Sampler, truncate
from plait.models.logprobs import scaled_logprobs
from plait.types.sampling import SamplingParams
from tests.engine.drafters import speculation
from tests.engine.tiny import Request, adapter, make_engine, model, serve

PROMPT = (3, 1, 4, 1, 5)
TOP_K, NUM_TOKENS, NUM_SEEDS = 3, 3, 1500
SMALLEST_EXPECTED = 5


def policy_distribution() -> dict[tuple[int, ...], float]:
    """Exact probability of each answer."""
    tiny = model()
    reference = ReferenceEngine(tiny.trainer, Sampler(), 256)
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(NUM_TOKENS):
        longer: dict[tuple[int, ...], float] = {}
        for answer, probability in found.items():
            with torch.inference_mode():
                logits = reference._last_logits([*PROMPT, *answer], adapter(tiny, "t0"))
            logprobs = truncate(scaled_logprobs(logits, 1.0)[0], 1.0, TOP_K)
            for token in logprobs.topk(TOP_K).indices.tolist():
                longer[*answer, token] = probability * float(logprobs[token].exp())
        found = longer
    return found


def chi_square_deviations(found: Sequence[int], wanted: Sequence[float]) -> float:
    """Standard deviations above what chance gives (Wilson and Hilferty 1931)."""
    statistic, freedom = sum((f - w) ** 2 / w for f, w in zip(found, wanted, strict=True)), len(found) - 1
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - 1 + spread) / math.sqrt(spread)


@pytest.mark.parametrize("use_gumbel", [False, True])
def test_answers_come_as_often_as_the_policy_says(use_gumbel: bool) -> None:
    wanted = policy_distribution()
    likeliest = max(wanted, key=lambda answer: wanted[answer])
    found = dict.fromkeys(wanted, 0)
    engine = make_engine(
        model(),
        max_rows=64,
        sampler=Sampler(use_gumbel),
        speculation=speculation(lambda name, drawn, most: likeliest[len(drawn) :]),
    )
    requests = [Request(str(seed), PROMPT, SamplingParams(NUM_TOKENS, top_k=TOP_K, seed=seed), "t0") for seed in range(NUM_SEEDS)]
    for outcome in serve(engine, requests).values():
        found[outcome.tokens] += 1
    assert engine.speculation is not None
    assert 0.1 < engine.speculation.num_accepted / engine.speculation.num_proposed < 0.9
    often = [answer for answer, share in wanted.items() if share * NUM_SEEDS >= SMALLEST_EXPECTED]
    counts = [found[answer] for answer in often]
    shares = [wanted[answer] for answer in often]
    counts.append(NUM_SEEDS - sum(counts))
    shares.append(1 - sum(shares))
    assert chi_square_deviations(counts, [share * NUM_SEEDS for share in shares]) < 2.6
