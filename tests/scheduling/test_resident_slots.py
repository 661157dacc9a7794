import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.scheduling.resident_slots import ResidentSlots
from plait.scheduling.setup_times import SetupTimes
from plait.types.errors import ConfigError


def times_of() -> SetupTimes:
    times = SetupTimes()
    for place, name in enumerate("abcd"):
        times.observe_offload(name, 1.0 + place)
        times.observe_load(name, "host", 10.0 * (1 + place))
        times.observe_load(name, "disk", 100.0 * (1 + place))
    return times


def test_the_current_one_leaves_and_the_next_one_comes_from_its_tier() -> None:
    slots = ResidentSlots(times_of(), tiers={"c": "disk"})
    assert slots.setup_s("a") == 10.0, "nobody has to leave"
    assert slots.enter("a") is None
    assert slots.setup_s("a") == 0.0
    assert slots.setup_s("b") == 1.0 + 20.0
    assert slots.setup_s("c") == 1.0 + 300.0
    assert slots.enter("c") == "a"
    assert slots.setup_s("a") == 3.0 + 10.0


@given(st.integers(1, 4), st.lists(st.sampled_from("abcd"), max_size=20))
def test_the_least_recently_used_leaves(num_slots: int, names: list[str]) -> None:
    slots = ResidentSlots(times_of(), num_slots)
    for at, name in enumerate(names):
        before = slots.resident
        left = slots.enter(name)
        used = list(dict.fromkeys(reversed(names[: at + 1])))
        assert slots.resident == tuple(reversed(used[:num_slots]))
        assert {left} - {None} == set(before) - set(slots.resident)
        assert all(slots.setup_s(other) == 0.0 for other in slots.resident)


@pytest.mark.parametrize("num_slots", [0, -1])
def test_no_slots_are_refused(num_slots: int) -> None:
    with pytest.raises(ConfigError, match="num_slots"):
        ResidentSlots(times_of(), num_slots)
