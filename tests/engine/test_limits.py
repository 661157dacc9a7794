"""Every hopeless chunk is told apart, by field and value."""

from typing import Any

import msgspec
import pytest

from plait.engine.limits import EngineLimits
from plait.types.chunks import Chunk
from plait.types.policy import AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams

LIMITS = EngineLimits(vocab_size=100, max_context_tokens=50, slot_tokens=40, has_tokenizer=False)
POLICY = PolicyVersion("local", "task", 3)
OTHER = PolicyVersion("local", "task", 2)
GOOD = Chunk("r", POLICY, (1, 2, 99), 10, SamplingParams(10), AdapterRef(POLICY, "/path", "digest"), 1)


def changed(**fields: Any) -> Chunk:
    return msgspec.structs.replace(GOOD, **fields)


def sampling(**fields: Any) -> Chunk:
    return changed(sampling=msgspec.structs.replace(GOOD.sampling, **fields))


@pytest.mark.parametrize(
    "chunk",
    [
        GOOD,
        changed(adapter=None),
        sampling(temperature=0, top_p=1e-6, top_k=10_000, seed=2**64 - 1),
        changed(context_tokens=(1,) * 39, budget_tokens=1, generated_tokens=9),
        changed(generated_tokens=0),
    ],
)
def test_chunks_that_can_be_served(chunk: Chunk) -> None:
    assert LIMITS.problem(chunk) == ""


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        (changed(context_tokens=()), "context_tokens is empty"),
        (changed(context_tokens=(1, -2)), "context_tokens holds the id -2"),
        (changed(context_tokens=(1, 100)), "context_tokens holds the id 100: the vocabulary is 0..99"),
        (changed(context_tokens=(1,) * 50), "context_tokens has 50 tokens and max_context_tokens is 50"),
        (changed(budget_tokens=0), "budget_tokens is 0"),
        (changed(budget_tokens=40), "needs 43 cached tokens and slot_tokens is 40"),
        (changed(generated_tokens=3), "generated_tokens is 3 of 3"),
        (changed(generated_tokens=-1), "generated_tokens is -1"),
        (sampling(max_new_tokens=1), "max_new_tokens is 1 and generated_tokens is already 1"),
        (changed(policy=OTHER), "policy is local/task@2 but adapter.policy is local/task@3"),
        (sampling(temperature=-1.0), "temperature is -1.0"),
        (sampling(temperature=1e-9), "temperature is 1e-09"),
        (sampling(temperature=float("nan")), "temperature is nan"),
        (sampling(temperature=float("inf")), "temperature is inf"),
        (sampling(top_p=0.0), "top_p is 0.0"),
        (sampling(top_p=1.5), "top_p is 1.5"),
        (sampling(top_k=-1), "top_k is -1"),
        (sampling(seed=-1), "seed is -1"),
        (sampling(seed=2**64), "seed is 18446744073709551616"),
        (sampling(stop_strings=("a", "")), "stop_strings holds an empty string"),
        (sampling(stop_strings=("a",)), "stop_strings is ('a',), and this engine has no tokenizer"),
    ],
)
def test_hopeless_chunks(chunk: Chunk, words: str) -> None:
    assert words in LIMITS.problem(chunk)


def test_context_limit_shortens_a_chunk() -> None:
    assert LIMITS.longest_tokens(changed(budget_tokens=1000)) == 50
