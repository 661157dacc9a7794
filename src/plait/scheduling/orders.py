"""In which order a worker group takes the calls that wait. Pure.

- `pick` decides and changes nothing; `served` tells the order what was taken.
- `heads` come in order of arrival, so the first of equals is the one that came first: ties are FIFO in every order.
- `pick` takes O(len(heads)), FIFO O(1). `GroupQueue` passes one head for each kind of call (deployment, function, class of size)
  that waits, whatever the number of calls and streams.
- Only `ShortestFirst` may let a call wait for ever. How far others overtake it under `Hrrs`, `hrrs.py` says.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.hrrs import Hrrs, expected_s

__all__ = ["ORDERS", "Fifo", "Hrrs", "LeastRecentlyServed", "Order", "RoundRobin", "ShortestFirst"]


class Order(Protocol):
    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        """The one of `heads` (at least one, in order of arrival) to run now. `service_s` of a call and `setup_s` of a deployment
        are expectations."""
        ...

    def served(self, call: FunctionCall) -> None:
        """It starts."""
        ...


class Fifo:
    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        return heads[0]

    def served(self, call: FunctionCall) -> None:
        pass


class ShortestFirst:
    """Least setup and service together."""

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        costs_s = expected_s(heads, service_s, setup_s)
        return heads[costs_s.index(min(costs_s))]

    def served(self, call: FunctionCall) -> None:
        pass


class RoundRobin:
    """Deployments in a ring: the next one after the last served, one call each. A new one joins at the end of the ring."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._last = -1

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        return min(heads, key=self._distance)

    def served(self, call: FunctionCall) -> None:
        self._last = self._places.setdefault(call.deployment, len(self._places))

    def _distance(self, call: FunctionCall) -> tuple[bool, int]:
        place = self._places.get(call.deployment, len(self._places))
        return place <= self._last, place


class LeastRecentlyServed:
    """The deployment that was served longest ago, or never; one call each."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        """Deployment -> number of its latest call among all that were served."""
        self._num_served = 0

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        return min(heads, key=lambda call: self._served.get(call.deployment, -1))

    def served(self, call: FunctionCall) -> None:
        self._served[call.deployment] = self._num_served
        self._num_served += 1


ORDERS: dict[str, Callable[[], Order]] = {
    "hrrs": Hrrs,
    "fifo": Fifo,
    "round-robin": RoundRobin,
    "least-recently-served": LeastRecentlyServed,
    "shortest-first": ShortestFirst,
}
