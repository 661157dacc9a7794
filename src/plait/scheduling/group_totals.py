"""What a worker group has done, summed up."""

from dataclasses import dataclass

from plait.scheduling.function_call import FunctionCall


@dataclass(slots=True)
class GroupTotals:
    num_calls: int = 0
    """Started."""
    num_switches: int = 0
    """Calls that another deployment than the one before had; the first of all is none."""
    waited_s: float = 0.0
    """From arrival to start, over all calls that started."""
    service_s: float = 0.0
    """Measured."""
    overhead_s: float = 0.0
    """The rest of the time in which calls ran: setup, and all of calls without a measurement."""
    last_deployment: str = ""

    def start(self, call: FunctionCall, now_s: float) -> None:
        self.num_switches += self.num_calls > 0 and call.deployment != self.last_deployment
        self.num_calls += 1
        self.last_deployment = call.deployment
        self.waited_s += now_s - call.arrival_s

    def end(self, ran_s: float, service_s: float | None) -> None:
        """`ran_s`: from start to end."""
        self.service_s += service_s or 0.0
        self.overhead_s += ran_s - (service_s or 0.0)
