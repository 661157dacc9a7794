"""What the engine draws follows the model's distribution, and its log-probabilities are of the distribution drawn from."""

import math

import numpy as np
import pytest
import torch

from plait.engine.sampler import Sampler
from plait.lora.mix import SingleLora
from plait.models.attention import PaddedAttention
from plait.types.sampling import SamplingParams, StopReason
from tests.engine.test_sampler import assert_follows, slow_truncation
from tests.engine.tiny import Model, Outcome, Request, adapter, make_engine, model, serve

PROMPT = tuple(range(50, 70))
SETTINGS = [
    SamplingParams(12, temperature=0.3), SamplingParams(12, temperature=0.7), SamplingParams(12),
    SamplingParams(12, temperature=0.7, top_p=0.9), SamplingParams(12, top_k=20), SamplingParams(12, temperature=0),
]  # fmt: skip


def probabilities(model: Model, tokens: tuple[int, ...], task: str, temperature: float) -> np.ndarray:
    """Next-token probabilities after every token, by one full pass of the trainer's decoder."""
    config, length = model.config, len(tokens)
    attention = PaddedAttention(1, length, config.num_heads // config.num_kv_heads, model.trainer.dtype, model.trainer.device)
    fused = adapter(model, task)
    lora = SingleLora(fused) if fused else None
    with torch.inference_mode():
        hidden = model.trainer.forward(torch.tensor(tokens), torch.arange(length), attention, lora)
        return torch.softmax(model.trainer.logits(hidden, lora).double() / temperature, -1).numpy()


@pytest.mark.parametrize("params", SETTINGS, ids=lambda p: f"T={p.temperature} p={p.top_p} k={p.top_k}")
def test_mean_importance_ratio_is_one(params: SamplingParams) -> None:
    """P25, P26: recomputed at the same temperature, over the kept tokens where some were cut off."""
    tiny = model(dtype=torch.float32)
    requests = [
        Request(str(i), PROMPT, SamplingParams(12, params.temperature, params.top_p, params.top_k, seed=i), f"t{i % 3}")
        for i in range(6)
    ]
    found = serve(make_engine(tiny), requests, budget=5)
    ratios = []
    for request in requests:
        outcome = found[request.request_id]
        table = probabilities(tiny, PROMPT + outcome.tokens, request.task, params.temperature or 1.0)
        for step, (token, logprob) in enumerate(zip(outcome.tokens, outcome.logprobs, strict=True)):
            row = table[len(PROMPT) - 1 + step]
            if params.temperature:
                row = slow_truncation(row, params.top_p, params.top_k)
            assert abs(math.log(row[token]) - logprob) < 1e-4
            ratios.append(row[token] / math.exp(logprob))
    assert len(ratios) == 72
    assert abs(np.mean(ratios) - 1) < 1e-4


@pytest.mark.parametrize("use_gumbel", [False, True], ids=["inverse", "gumbel"])
@pytest.mark.parametrize("task", ["base", "t1"])
def test_drawn_tokens_follow_the_model(use_gumbel: bool, task: str) -> None:
    """P56: chi-square of many seeds' second token, given the most common first one."""
    tiny = model(dtype=torch.float32)
    params = [SamplingParams(1, temperature=0.8, seed=seed) for seed in range(1500)]
    engine = make_engine(tiny, max_rows=64, sampler=Sampler(use_gumbel))
    found = serve(engine, [Request(str(p.seed), PROMPT, p, task) for p in params])
    counts = np.bincount([outcome.tokens[0] for outcome in found.values()], minlength=tiny.config.vocab_size)
    assert_follows(counts, probabilities(tiny, PROMPT, task, 0.8)[-1])
    assert engine.num_prefilled_tokens == len(PROMPT) - 1


def answers(seeds: list[int], prompt: tuple[int, ...] = PROMPT) -> list[Outcome]:
    requests = [Request(str(i), prompt, SamplingParams(16, seed=seed), "t0") for i, seed in enumerate(seeds)]
    found = serve(make_engine(model()), requests)
    return [found[str(i)] for i in range(len(seeds))]


def test_seed_decides() -> None:
    same, again, other = answers([7, 7, 8])
    assert same.tokens == again.tokens
    assert same.logprobs == again.logprobs
    assert same.tokens != other.tokens
    assert answers([7])[0].tokens == same.tokens, "in another engine as well"


def test_positions_draw_different_noise() -> None:
    """A constant distribution would repeat one token if positions shared noise."""
    assert len(set(answers([7])[0].tokens)) > 3
    assert answers([7], (*PROMPT, 1))[0].tokens[:15] != answers([7])[0].tokens[1:]


def test_greedy_takes_the_likeliest() -> None:
    tiny = model(dtype=torch.float32)
    found = serve(make_engine(tiny), [Request("g", PROMPT, SamplingParams(10, temperature=0, seed=s), "t0") for s in (1,)])["g"]
    table = probabilities(tiny, PROMPT + found.tokens, "t0", 1.0)
    assert list(found.tokens) == table[len(PROMPT) - 1 : -1].argmax(-1).tolist()


@pytest.mark.parametrize("budget", [1, 3, 1000])
def test_stop_reasons_across_chunk_cuts(budget: int) -> None:
    """Each limit is of the whole generation, however it is cut."""
    tiny = model()
    plain = answers([3])[0].tokens
    text = tiny.tokenizer.decode(plain)
    stop_string = text[len(text) // 2 : len(text) // 2 + 3]
    stop_token = plain[9]
    requests = {
        "length": SamplingParams(11, seed=3),
        "token": SamplingParams(16, seed=3, stop_token_ids=(stop_token,)),
        "string": SamplingParams(16, seed=3, stop_strings=("never in it", stop_string)),
        "context": SamplingParams(100, seed=3),
    }
    engine = make_engine(tiny, max_context_tokens=len(PROMPT) + 13, decode=tiny.tokenizer.decode)
    found = serve(engine, [Request(name, PROMPT, params, "t0") for name, params in requests.items()], budget)
    assert {name: outcome.stop for name, outcome in found.items()} == {
        "length": StopReason.LENGTH, "token": StopReason.STOP_TOKEN, "string": StopReason.STOP_STRING, "context": StopReason.CONTEXT
    }  # fmt: skip
    assert found["length"].tokens == plain[:11]
    assert found["token"].tokens == plain[: plain.index(stop_token) + 1]
    assert found["context"].tokens == plain[:13]
    ends = [end for end in range(1, 17) if stop_string in tiny.tokenizer.decode(plain[:end])]
    assert found["string"].tokens == plain[: ends[0]]
    assert all(len(result.tokens) <= budget for outcome in found.values() for result in outcome.results)
