"""Whether HRRS keeps what it promises (`plait.scheduling.hrrs`) about each call that was overtaken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.hrrs import Hrrs, expected_s

LITTLE = 1e-9
"""Rounding."""


@dataclass(slots=True)
class _Waiting:
    call: FunctionCall
    cost_s: float = 0.0
    """The most expected of it, and of those of its stream before it, at any decision."""
    ahead_s: float = 0.0
    """The furthest that any decision looked ahead."""


class WatchedHrrs(Hrrs):
    """Checks each decision as it is made."""

    def __init__(self, lookahead: float) -> None:
        super().__init__(lookahead)
        self._waiting: dict[str, _Waiting] = {}
        self.num_broken = 0
        """Calls that started before one that had come first, and may not have."""

    def added(self, call: FunctionCall) -> None:
        self._waiting[call.call_id] = _Waiting(call)

    def pick(
        self,
        heads: Sequence[FunctionCall],
        now_s: float,
        service_s: Callable[[FunctionCall], float],
        setup_s: Callable[[str], float],
    ) -> FunctionCall:
        costs_s = expected_s(heads, service_s, setup_s)
        self._note(self.lookahead * sum(costs_s) / len(costs_s), service_s, setup_s)
        picked = super().pick(heads, now_s, service_s, setup_s)
        del self._waiting[picked.call_id]
        cost_s = costs_s[heads.index(picked)]
        for other in self._waiting.values():
            if other.call.arrival_s < picked.arrival_s:
                self.num_broken += not self._may_overtake(picked, cost_s, other, now_s)
        return picked

    def _may_overtake(self, call: FunctionCall, cost_s: float, other: _Waiting, now_s: float) -> bool:
        waited_s = now_s - other.call.arrival_s
        has_waited_enough = cost_s * (waited_s + other.ahead_s) <= other.cost_s * (now_s - call.arrival_s + other.ahead_s) + LITTLE
        return has_waited_enough and waited_s <= (self.max_score - 1) * other.cost_s + LITTLE

    def _note(self, ahead_s: float, service_s: Callable[[FunctionCall], float], setup_s: Callable[[str], float]) -> None:
        longest: dict[tuple[str, str], float] = {}
        setups: dict[str, float] = {}
        for waiting in self._waiting.values():
            call, key = waiting.call, (waiting.call.deployment, waiting.call.stream)
            if call.deployment not in setups:
                setups[call.deployment] = setup_s(call.deployment)
            longest[key] = max(longest.get(key, 0.0), service_s(call) + setups[call.deployment])
            waiting.cost_s = max(waiting.cost_s, longest[key])
            waiting.ahead_s = max(waiting.ahead_s, ahead_s)
