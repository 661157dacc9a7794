"""What finds no place off the device, at the worst."""

from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.groups.room_below import Occupant, homeless_bytes

SIZES = st.integers(0, 20)


def test_nothing_is_without_a_place_if_all_fit_on_the_device_or_memory_has_no_bound() -> None:
    two = [Occupant(10, 8, 1), Occupant(10, 8, 1)]
    assert homeless_bytes(two, {"base": 5}, 20, 0) == 0
    assert homeless_bytes(two, {"base": 5}, 19, None) == 0
    assert homeless_bytes(two, {"base": 5}, 19, 0) == 21 - 8 - 1 - 9


@given(
    occupants=st.lists(st.builds(Occupant, SIZES, SIZES, SIZES), min_size=1, max_size=4),
    bases=st.dictionaries(st.sampled_from("xy"), SIZES),
    device=SIZES,
    below=SIZES,
)
def test_it_is_the_worst_of_all_deployments_that_can_have_the_device(
    occupants: list[Occupant], bases: dict[str, int], device: int, below: int
) -> None:
    worst = 0
    for here in occupants:
        away = sum(bases.values()) - here.embedding + sum(one.parked for one in occupants) - here.parked
        worst = max(worst, away - max(0, device - here.on_device) - below)
    fits = sum(one.on_device for one in occupants) <= device
    assert homeless_bytes(occupants, bases, device, below) == (0 if fits else worst)
