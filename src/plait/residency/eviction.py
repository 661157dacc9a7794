"""Which group leaves a tier first. Pure: the clock is passed in."""

from collections.abc import Callable, Sequence

import msgspec


class Resident(msgspec.Struct, frozen=True):
    """A group that could leave a tier.

    `next_turn`: its place among what runs next (0 is the first), None if nobody knows of a turn.
    `is_on_faster_tier`: a faster tier holds all of it, so that nobody waits for it if it leaves this one.
    """

    name: str
    last_used_s: float
    next_turn: int | None
    is_on_faster_tier: bool


EvictionOrder = Callable[[Sequence[Resident], float], list[str]]
"""(candidates, now) -> their names, the first to leave first."""


def least_soon(residents: Sequence[Resident], now_s: float) -> list[str]:
    """Copies of what a faster tier holds; then what has no turn, the least recently used first; then the latest turn.

    With turns known it is the optimal rule (Belady 1966), else LRU.
    """
    return [resident.name for resident in sorted(residents, key=_key)]


def _key(resident: Resident) -> tuple[bool, float, float, str]:
    turn = float("inf") if resident.next_turn is None else resident.next_turn
    return not resident.is_on_faster_tier, -turn, resident.last_used_s, resident.name
