import math

import pytest

from plait.scheduling.setup_times import SetupTimes
from plait.types.errors import PlaitError


def test_each_deployment_and_tier_has_its_own_time() -> None:
    times = SetupTimes(default_s=5.0)
    assert (times.load_s("a", "host"), times.offload_s("a")) == (5.0, 5.0)
    times.observe_load("a", "host", 1.0)
    times.observe_load("a", "disk", 8.0)
    times.observe_load("b", "host", 3.0)
    times.observe_offload("a", 0.5)
    assert (times.load_s("a", "host"), times.load_s("a", "disk"), times.load_s("b", "host")) == (1.0, 8.0, 3.0)
    assert times.offload_s("a") == 0.5


def test_a_new_deployment_takes_the_average_of_its_tier() -> None:
    times = SetupTimes(default_s=5.0)
    for name, seconds in (("a", 1.0), ("b", 3.0)):
        times.observe_load(name, "host", seconds)
        times.observe_offload(name, 2 * seconds)
    assert times.load_s("new", "host") == 2.0
    assert times.load_s("new", "disk") == 5.0
    assert times.offload_s("new") == 4.0


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_times_without_a_sense_are_refused(seconds: float) -> None:
    times = SetupTimes()
    with pytest.raises(PlaitError, match="'a' took"):
        times.observe_load("a", "host", seconds)
    with pytest.raises(PlaitError, match="'a' took"):
        times.observe_offload("a", seconds)
    assert times.load_s("a", "host") == times.offload_s("a") == 1.0
