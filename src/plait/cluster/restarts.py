"""How often what was lost is replaced. Pure, the clock passed in."""

from collections.abc import Callable

RESTART_WINDOW_S = 3600.0


class Restarts:
    """Up to `most` within `RESTART_WINDOW_S`."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = most, clock
        self._times_s: list[float] = []

    def take(self) -> bool:
        """One more; False if there may be none."""
        now_s = self._clock()
        self._times_s = [time_s for time_s in self._times_s if now_s - time_s < RESTART_WINDOW_S]
        if len(self._times_s) >= self._most:
            return False
        self._times_s.append(now_s)
        return True
