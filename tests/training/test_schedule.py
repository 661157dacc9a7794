"""Schedules against values computed by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.config.task import OptimizerSettings
from plait.training.schedule import learning_rate
from plait.types.errors import ConfigError


def rates(total: int, **settings: Any) -> list[float]:
    parsed = OptimizerSettings(learning_rate=1.0, **settings)
    return [learning_rate(parsed, step, total) for step in range(1, total + 1)]


def test_by_hand() -> None:
    assert rates(4) == [1, 1, 1, 1]
    assert rates(4, schedule="linear") == [1, 0.75, 0.5, 0.25]
    assert rates(4, schedule="cosine") == pytest.approx([1, 0.8535534, 0.5, 0.1464466])
    assert rates(6, schedule="linear", warmup_steps=2) == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert rates(2, schedule="cosine", warmup_steps=4) == [0.25, 0.5]


@given(st.sampled_from(["constant", "linear", "cosine"]), st.integers(0, 30), st.integers(1, 60))
def test_every_step_moves_and_none_exceeds_the_rate(schedule: str, warmup: int, total: int) -> None:
    assert all(0 < rate <= 1 for rate in rates(total, schedule=schedule, warmup_steps=warmup))


@pytest.mark.parametrize("step", [0, 5, -1])
def test_step_out_of_range(step: int) -> None:
    with pytest.raises(ConfigError, match=f"step {step} is outside"):
        learning_rate(OptimizerSettings(), step, 4)
