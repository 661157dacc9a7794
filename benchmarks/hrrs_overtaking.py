"""Whether HRRS keeps what it promises (`plait.scheduling.hrrs`) about each call that was overtaken."""

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.resident_slots import ResidentSlots
from plait.scheduling.service_times import ServiceTimes

LITTLE = 1e-9
"""Rounding."""


class Overtaking:
    def __init__(self, max_score: float, services: ServiceTimes, slots: ResidentSlots) -> None:
        self._max_score = max_score
        self._services = services
        self._slots = slots
        self._waiting: dict[str, FunctionCall] = {}
        self._costs: dict[str, float] = {}
        """The most expected of each at any decision, and of those of its stream before it."""
        self.num_broken = 0
        """Calls that started before one that had come first, and may not have."""

    def add(self, call: FunctionCall) -> None:
        self._waiting[call.call_id] = call
        self._costs[call.call_id] = 0.0

    def start(self, call: FunctionCall, now_s: float) -> None:
        """Before what it changes: estimates are those of the decision."""
        self._note_costs()
        cost_s = self._cost_s(call)
        del self._waiting[call.call_id], self._costs[call.call_id]
        for other in self._waiting.values():
            if other.arrival_s < call.arrival_s:
                self.num_broken += not self._may_overtake(call, cost_s, other, now_s)

    def _may_overtake(self, call: FunctionCall, cost_s: float, other: FunctionCall, now_s: float) -> bool:
        other_cost_s, waited_s = self._costs[other.call_id], now_s - other.arrival_s
        has_waited_enough = cost_s * waited_s <= other_cost_s * (now_s - call.arrival_s) + LITTLE
        return has_waited_enough and waited_s <= (self._max_score - 1) * other_cost_s + LITTLE

    def _cost_s(self, call: FunctionCall) -> float:
        return self._services.estimate_s(call) + self._slots.setup_s(call.deployment)

    def _note_costs(self) -> None:
        longest: dict[tuple[str, str], float] = {}
        for call_id, call in self._waiting.items():
            key = call.deployment, call.stream
            longest[key] = max(longest.get(key, 0.0), self._cost_s(call))
            self._costs[call_id] = max(self._costs[call_id], longest[key])
