"""Calls of one part of a job that have ended, one after another: kept as one until somebody looks at the trace."""

from collections.abc import Callable
from typing import NamedTuple

from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.simulation.job_shape import PartShape


class EndedCalls(NamedTuple):
    """Those from number `first` on, of `num_calls` that take `call_s` each and come one after another from `start_s`."""

    role: Role
    shape: PartShape
    start_s: float
    call_s: float
    first: int
    num_calls: int

    def tell(self, record: Callable[[FunctionRecord], None]) -> None:
        """Each of them."""
        function = "sample" if self.role is Role.ROLLOUT else "train"
        devices, num_bytes, start_s = self.shape.num_devices, self.shape.bytes_per_device, self.start_s
        for index in range(self.num_calls):
            end_s = start_s + self.call_s
            if index >= self.first:
                record(FunctionRecord(start_s, end_s, function, self.role, devices, num_bytes))
            start_s = end_s + self.shape.delay_s
