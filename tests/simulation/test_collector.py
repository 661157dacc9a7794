import gc

import pytest

from plait.simulation.collector import THRESHOLDS, seldom_collected


def test_what_was_set_comes_back_whatever_happens() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), seldom_collected():
        assert gc.get_threshold() == THRESHOLDS
        _ = 1 / 0
    assert gc.get_threshold() == before
