"""Expected service times of function calls, from those measured. Pure.

- Calls of one kind (deployment, function, class of size) share one moving average. Two sizes of a class differ by less than half,
  and a class knows nothing finer: calls of one kind have one expectation, which `GroupQueue` builds on.
- A kind without a measurement takes the nearest class of its deployment's function in proportion to size, else that function at
  other deployments, else `default_s`.
- Both calls take O(1); an estimate of a kind without a measurement takes O(classes of its function).
"""

import math
from functools import lru_cache

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.moving_average import MovingAverage
from plait.types.errors import PlaitError

Kind = tuple[str, str, int]
"""Deployment, function, class of size."""
DEFAULT_S = 1.0


@lru_cache(1 << 16)
def size_class(size_tokens: int) -> int:
    """Two classes an octave: 1 | 2 | 3 | 4 5 | 6 7 | 8 to 11 | 12 to 15 | ..., and one for 0."""
    if size_tokens < 2:
        return size_tokens
    length = size_tokens.bit_length()
    return 2 * length + (size_tokens >> (length - 2) & 1) - 2


def kind_of(call: FunctionCall) -> Kind:
    size_tokens = call.size_tokens
    return call.deployment, call.function, size_class(size_tokens) if size_tokens else 0


class ServiceTimes:
    """`default_s` is expected of a function that has never been measured anywhere."""

    def __init__(self, default_s: float = DEFAULT_S) -> None:
        self._default_s = default_s
        self._by_kind: dict[Kind, tuple[MovingAverage, ...]] = {}
        """Of the kind, and of its function and class of size over all deployments; one for both where no other has it."""
        self._sole: dict[tuple[str, int], Kind] = {}
        """(Function, class of size) -> the only kind of it, as long as there is one deployment that has it."""
        self._by_size: dict[tuple[str, str], dict[int, MovingAverage]] = {}
        """The same: (deployment, function) -> class of size; under the deployment "", over all."""

    def observe(self, call: FunctionCall, service_s: float, count: int = 1) -> None:
        """Take a measured time, without setup, of so many calls of this kind. PlaitError unless it is finite and at least 0."""
        if not 0 <= service_s < math.inf:
            raise PlaitError(f"service_s of call {call.call_id!r} is {service_s}.", "Give measured seconds, 0 or more.")
        kind = kind_of(call)
        for average in self._by_kind.get(kind) or self._open(kind):
            average.add(service_s, count)

    def estimate_s(self, call: FunctionCall) -> float:
        """Expected seconds of service."""
        kind = kind_of(call)
        found = self._by_kind.get(kind)
        return found[0].value if found else self._derive(kind)

    def _open(self, kind: Kind) -> tuple[MovingAverage, ...]:
        deployment, function, size = kind
        own = self._by_size.setdefault((deployment, function), {})[size] = MovingAverage()
        everywhere = self._by_size.setdefault(("", function), {})
        if size not in everywhere:
            everywhere[size], self._sole[function, size] = own, kind
            self._by_kind[kind] = (own,)
        else:
            self._part(function, size, everywhere)
            self._by_kind[kind] = own, everywhere[size]
        return self._by_kind[kind]

    def _part(self, function: str, size: int, everywhere: dict[int, MovingAverage]) -> None:
        """A second deployment comes: what the first has measured is over all deployments from now on as well as its own."""
        sole = self._sole.pop((function, size), None)
        if sole is not None:
            own = self._by_kind[sole][0]
            everywhere[size] = own.copy()
            self._by_kind[sole] = own, everywhere[size]

    def _derive(self, kind: Kind) -> float:
        deployment, function, size = kind
        for name in (deployment, ""):
            if classes := self._by_size.get((name, function)):
                nearest = min(classes, key=lambda other: abs(other - size))
                return classes[nearest].value * 2 ** ((size - nearest) / 2)
        return self._default_s
