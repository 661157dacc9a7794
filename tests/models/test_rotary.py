"""Rotary tables equal transformers', and scores depend on distance alone."""

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from plait.models.rotary import Rotary, rotary_frequencies, rotate
from plait.models.tiny import tiny_config
from plait.types.errors import ModelError
from plait.types.model import ModelConfig, RopeScaling

THETA, DIM, CONTEXT = 10_000.0, 64, 4096


def config(scaling: RopeScaling) -> ModelConfig:
    return msgspec.structs.replace(tiny_config(), head_dim=DIM, rope_theta=THETA, rope_scaling=scaling, max_context_tokens=CONTEXT)


CASES: list[tuple[RopeScaling, dict[str, Any]]] = [
    (RopeScaling("linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    (
        RopeScaling("llama3", 8.0, 1.0, 4.0, 1024),
        {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1024,
        },
    ),
    (
        RopeScaling("yarn", 4.0, original_max_context_tokens=1024),
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    ),
    (
        RopeScaling("yarn", 2.0, original_max_context_tokens=2048, beta_fast=16.0, beta_slow=2.0, attention_factor=1.3),
        {
            "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048, "beta_fast": 16.0, "beta_slow": 2.0,
            "attention_factor": 1.3,
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("scaling", "parameters"), CASES, ids=lambda case: getattr(case, "kind", ""))
def test_frequencies_equal_those_of_transformers(scaling: RopeScaling, parameters: dict[str, Any]) -> None:
    theirs = LlamaConfig(
        hidden_size=4 * DIM,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_theta": THETA} | parameters,
    )
    expected, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](theirs, torch.device("cpu"))
    found, found_factor = rotary_frequencies(config(scaling))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    assert found_factor == pytest.approx(factor)


@pytest.mark.parametrize("kind", ["default", "dynamic"])
def test_unscaled_frequencies_are_powers_of_theta(kind: Any) -> None:
    found, factor = rotary_frequencies(config(RopeScaling(kind, factor=2.0)))
    assert factor == 1.0
    torch.testing.assert_close(found, THETA ** (-torch.arange(0, DIM, 2) / DIM))


def test_unknown_scaling_is_refused() -> None:
    with pytest.raises(ModelError, match="longrope"):
        rotary_frequencies(config(RopeScaling("longrope")))  # type: ignore[arg-type]


@given(first=st.integers(0, 500), distance=st.integers(0, 500), shift=st.integers(0, 1000))
def test_scores_depend_on_distance_alone(first: int, distance: int, shift: int) -> None:
    rotary = Rotary(config(RopeScaling()), torch.device("cpu"))
    q, k = torch.randn(2, 1, 1, DIM, generator=torch.Generator().manual_seed(0))

    def score(query: int, key: int) -> torch.Tensor:
        turned = [rotate(x, *rotary.tables(torch.tensor([at]), torch.float32)) for x, at in ((q, query), (k, key))]
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(first + distance, first), score(first + distance + shift, first + shift), atol=2e-2, rtol=0)


def test_position_zero_changes_nothing_and_length_is_kept() -> None:
    rotary = Rotary(config(RopeScaling()), torch.device("cpu"))
    x = torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, *rotary.tables(torch.tensor([0, 77]), torch.float32))
    assert torch.equal(turned[0], x[0])
    assert not torch.allclose(turned[1], x[1])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
