"""What finds no place off the device, at the worst."""

from hypothesis import given
from hypothesis import strategies as st

from plait.cluster.groups.room_below import Occupant, homeless_bytes

SIZES = st.integers(0, 20)


def test_without_a_bound_below_everything_finds_a_place() -> None:
    two = [Occupant(10, 8, "x", 1), Occupant(10, 8, "x", 1)]
    assert homeless_bytes(two, {"x": 5}, 19, None) == 0
    assert homeless_bytes(two, {"x": 5}, 19, 0) == 21 - 8 - 1 - 9


def test_what_fits_together_needs_a_place_for_the_weights_as_they_are_not_laid_out() -> None:
    two = [Occupant(10, 8, "x", 1), Occupant(10, 8, "x", 1)]
    assert [homeless_bytes(two, {"x": 5}, device, 0) for device in (20, 22, 24)] == [4, 2, 0]
    assert homeless_bytes(two, {"x": 5}, 20, 4) == 0


EMBEDDINGS = st.fixed_dictionaries({"x": SIZES, "y": SIZES})


@given(
    places=st.lists(st.tuples(SIZES, SIZES, st.sampled_from("xy")), min_size=1, max_size=4),
    embeddings=EMBEDDINGS,
    bases=st.dictionaries(st.sampled_from("xy"), SIZES),
    device=SIZES,
    below=SIZES,
)
def test_it_is_the_worst_of_all_deployments_that_can_have_the_device(
    places: list[tuple[int, int, str]], embeddings: dict[str, int], bases: dict[str, int], device: int, below: int
) -> None:
    occupants = [Occupant(on_device, parked, base, embeddings[base]) for on_device, parked, base in places]
    on_device = sum(one.on_device for one in occupants)
    if on_device > device:
        parked = sum(one.parked for one in occupants)
        away = [parked - here.parked - here.embedding - max(0, device - here.on_device) for here in occupants]
    else:  # All of them are there.
        away = [-sum(embeddings[base] for base in {one.base for one in occupants}) - (device - on_device)]
    expected = max(0, sum(bases.values()) + max(away) - below)
    assert homeless_bytes(occupants, bases, device, below) == expected
