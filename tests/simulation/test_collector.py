"""The collector's settings come back."""

import gc

import pytest

from plait.simulation.collector import THRESHOLDS, seldom_collected


@seldom_collected()
def divide(by: int) -> float:
    assert gc.get_threshold() == THRESHOLDS
    return 1 / by


def test_what_was_set_comes_back_whatever_happens() -> None:
    before = gc.get_threshold()
    divide(1)
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError):
        divide(0)
    assert gc.get_threshold() == before
