"""The search for the smallest number, against asking about all of them."""

from hypothesis import given
from hypothesis import strategies as st

from plait.simulation.smallest import CHECKED_ABOVE, smallest_enough


@given(st.integers(1, 300), st.integers(0, 300), st.integers(1, 700))
def test_it_is_the_smallest_where_more_is_always_enough(low: int, width: int, threshold: int) -> None:
    asked: list[int] = []

    def is_enough(number: int) -> bool:
        asked.append(number)
        return number >= threshold

    wanted = next((number for number in range(low, low + width + 1) if number >= threshold), None)
    assert smallest_enough(low, low + width, is_enough) == wanted
    assert len(asked) == len(set(asked)) <= 15


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_what_is_found_is_enough_and_so_are_those_above(answers: list[bool]) -> None:
    found = smallest_enough(0, len(answers) - 1, answers.__getitem__)
    assert (found is None) == (not answers[-1])
    if found is not None:
        assert all(answers[found : found + CHECKED_ABOVE + 1])
