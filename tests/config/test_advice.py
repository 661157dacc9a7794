"""Rates that are an adapter's get a warning where all weights are trained, and nowhere else."""

from typing import Any

import pytest

from plait.config.advice import MAX_FULL_RATE, advise
from plait.config.task import TaskSettings


def advice(**keys: Any) -> list[str]:
    return list(advise(TaskSettings.model_validate({"name": "a", "environment": {"kind": "calculator"}, **keys})))


def test_the_defaults_are_too_high_for_all_weights() -> None:
    assert advice(training="full") == [
        'optimizer.learning_rate = 0.0005 (the default, which is for adapters) is high for training = "full": start at 1e-05'
    ]
    told = advice(training="full", optimizer={"learning_rate": 1e-5}, warm_start={"steps": 2})
    assert [text.partition(" = ")[0] for text in told] == ["warm_start.learning_rate"]


@pytest.mark.parametrize(("rate", "is_told"), [(1e-5, False), (MAX_FULL_RATE, False), (6e-5, True), (1e-3, True)])
def test_the_bound(rate: float, is_told: bool) -> None:
    told = advice(training="full", optimizer={"learning_rate": rate})
    assert [text.startswith(f"optimizer.learning_rate = {rate:g} is high") for text in told] == [True] * is_told


def test_adapters_are_not_warned_of() -> None:
    assert advice(warm_start={"steps": 2}, optimizer={"learning_rate": 1.0}) == []
