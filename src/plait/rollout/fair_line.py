"""Whose turn it is among those that wait, by weight. Pure.

Start-time fair queueing (Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996), with turns and with refunds.

- Of any two that wait all the while, what each was charged less refunds, divided by its weight, never drifts apart by more than
  `(turn_cost + chunk + running) / weight`, summed over both: `chunk` is the most charged at once, and `running` the most charged
  at any time for what still ran and may be refunded.
- Who comes to wait, waits while each other is charged at most `turn_cost + chunk + running`, less refunds, whatever the weights:
  nobody starves.
- What is charged past the one whose turn it is adds to both, until it is made up for.
- Who did not wait saves nothing up.
- Each call takes O(log n), averaged over calls.
"""

import math

from plait.rollout.keyed_heap import KeyedHeap
from plait.types.errors import ConfigError


class FairLine:
    """`turn_cost`: who has the turn keeps it until that much was charged, or it has left. Costs are positive, in any one unit."""

    def __init__(self, turn_cost: float = 0.0) -> None:
        self.turn_cost = turn_cost
        self._weights: dict[str, float] = {}
        self._served: dict[str, float] = {}
        """Virtual time up to which each has been served; one that is not here, up to the present one."""
        self._waiting: KeyedHeap[tuple[float, int]] = KeyedHeap()
        """By virtual time served, then order of arrival in the line."""
        self._num_entered = 0
        self._virtual_time = 0.0
        """Start of the latest turn; once nobody waits, the end of all that was charged."""
        self._latest = 0.0
        """Furthest that anyone was ever served."""
        self._holder = ""
        """Who has the turn."""
        self._turn_left = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def set_weight(self, name: str, weight: float) -> None:
        """Of what is charged from now on; 1 for whom none was set for. ConfigError unless finite and above 0."""
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigError(f"weight of {name!r} is {weight}.", "Give a finite number above 0.")
        self._weights[name] = weight

    def weight(self, name: str) -> float:
        return self._weights.get(name, 1.0)

    def enter(self, name: str) -> None:
        """It has something waiting."""
        if name not in self._waiting:
            self._served[name] = max(self._virtual_time, self._served.get(name, 0.0))
            self._line_up(name)
            self._forget_idle()

    def leave(self, name: str) -> None:
        """It has nothing waiting."""
        self._waiting.discard(name)
        if name == self._holder:
            self._holder = ""
        if not self._waiting:
            self._virtual_time = self._latest

    def first(self) -> str | None:
        return self._holder or self._waiting.first()

    def charge(self, name: str, cost: float) -> None:
        """A chunk of a name in the line starts."""
        if name == self.first():
            self._count_turn(name, cost)
        served = self._served[name] = self._served[name] + cost / self._weights.get(name, 1.0)
        if served > self._latest:
            self._latest = served
        self._line_up(name)

    def refund(self, name: str, cost: float) -> None:
        """Part of what was charged was not used."""
        if name in self._served:
            self._served[name] -= cost / self.weight(name)
            if name in self._waiting:
                self._line_up(name)

    def _line_up(self, name: str) -> None:
        self._num_entered += 1
        self._waiting.put(name, (self._served[name], self._num_entered))

    def _count_turn(self, name: str, cost: float) -> None:
        if name != self._holder:
            self._virtual_time = max(self._virtual_time, self._served[name])
            self._holder, self._turn_left = name, self.turn_cost
        self._turn_left -= cost
        if self._turn_left <= 0:
            self._holder = ""

    def _forget_idle(self) -> None:
        """Whoever is not ahead needs no record."""
        if len(self._served) > 2 * len(self._waiting) + 64:
            self._served = {n: t for n, t in self._served.items() if n in self._waiting or t > self._virtual_time}
