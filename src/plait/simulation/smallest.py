"""The smallest number that is enough, where more is nearly always enough too. Pure."""

from collections.abc import Callable

CHECKED_ABOVE = 2
"""The sizes just above an answer are looked at too: if one of them is not enough, the answer was luck."""


def smallest_enough(low: int, high: int, is_enough: Callable[[int], bool]) -> int | None:
    """By bisection over `low` to `high`; None if `high` is not enough. Each number is asked about once at most.

    If "enough" only ever changes from no to yes, the answer is the smallest. Else it is a number that is enough, with the
    CHECKED_ABOVE numbers above it.
    """
    known: dict[int, bool] = {}

    def ask(number: int) -> bool:
        if number not in known:
            known[number] = is_enough(number)
        return known[number]

    if low > high or not ask(high):
        return None
    floor = low
    while True:
        found = _bisect(floor, high, ask)
        above = range(found + 1, min(high, found + CHECKED_ABOVE) + 1)
        failing = [number for number in above if not ask(number)]
        if not failing:
            return found
        floor = failing[-1] + 1


def _bisect(low: int, high: int, ask: Callable[[int], bool]) -> int:
    """`high` is enough."""
    while low < high:
        middle = (low + high) // 2
        if ask(middle):
            high = middle
        else:
            low = middle + 1
    return high
